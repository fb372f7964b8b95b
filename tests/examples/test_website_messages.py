"""What the website builder takes messages for: it is the pipeline that knows builds, fixes and questions."""

from __future__ import annotations

import pytest

from onward.chats.intent import Candidate, Offered, read_by_rules
from onward.pipeline.build import build
from onward.pipeline.purpose import Purpose, purpose_of
from tests.examples.website import WEBSITE

NEW, THERE = False, True
TABLE = [
    ("build me a landing page", NEW, "build", "full"),
    ("Build a shop with a database and a checkout page", NEW, "build", "full"),
    ("a website for my café", NEW, "build", "full"),
    ("can you make a to-do app?", NEW, "build", "full"),
    ("create a REST api with login", NEW, "build", "backend"),
    ("build a blue page with a big font", NEW, "build", "full"),
    ("the login endpoint crashes", NEW, "fix", "backend"),
    ("fix the contact form", THERE, "fix", "frontend"),
    ("make the header blue", THERE, "fix", "styling"),
    ("add a footer", THERE, "fix", "frontend"),
    ("the page looks wrong on phones", THERE, "fix", "frontend"),
    ("change the colours to green", THERE, "fix", "styling"),
    ("build a new admin page", THERE, "build", "full"),
    ("build the frontend of a landing page", NEW, "build", "frontend"),
    ("How does the login work?", THERE, "question", "backend"),
    ("why is the button blue", THERE, "question", "styling"),
    ("what can you do?", NEW, "question", "full"),
    ("could you change the font?", THERE, "fix", "styling"),
    ("fix the login and the header", THERE, "fix", "full"),
    ("", NEW, "build", "full"),
    ("日本語のページ", NEW, "build", "full"),
]


def website() -> Purpose:
    types = ("brief", "problems", "build_check", "version")
    built = build((WEBSITE / "website.dot").read_text(), file="website.dot", known_types=types)
    return purpose_of(built.graph)


@pytest.mark.parametrize(("text", "has_files", "intent", "scope"), TABLE)
def test_words_say_what_is_wanted_and_where(text: str, has_files: bool, intent: str, scope: str) -> None:
    """S0-3, S0-4: an intent and a scope of the known ones, always."""
    offered = Offered((Candidate("website", 1, website()),))
    found = read_by_rules(text, offered, has_files=has_files)
    assert (found.intent, found.scope, found.by) == (intent, scope, "rules")
    assert (found.pipeline, found.version) == ("website", 1)


def test_the_known_intents_and_scopes_are_those_of_the_document() -> None:
    """S0-3, S0-4: and each is described for a model that reads messages."""
    purpose = website()
    assert {kind.name for kind in purpose.intents} == {"build", "fix", "question"}
    assert {kind.name for kind in purpose.scopes} == {"frontend", "backend", "styling", "full"}
    assert all(kind.about for kind in (*purpose.intents, *purpose.scopes))

"""Messages, as rules read them."""

from __future__ import annotations

import pytest

from onward.chats.intent import read_by_rules
from onward.model.chat import INTENTS, SCOPES

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
    ("", NEW, "build", "full"),
    ("日本語のページ", NEW, "build", "full"),
]


@pytest.mark.parametrize(("text", "has_files", "intent", "scope"), TABLE)
def test_words_say_what_is_wanted_and_where(text: str, has_files: bool, intent: str, scope: str) -> None:
    """S0-3, S0-4: an intent and a scope of the known ones, always."""
    found = read_by_rules(text, has_files=has_files)
    assert (found.intent, found.scope, found.by) == (intent, scope, "rules")
    assert found.intent in INTENTS
    assert found.scope in SCOPES


def test_the_known_intents_and_scopes_are_those_of_the_document() -> None:
    """S0-3, S0-4."""
    assert INTENTS == ("build", "fix", "question")
    assert SCOPES == ("frontend", "backend", "styling", "full")

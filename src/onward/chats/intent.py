"""What a message wants and which part of the work it is about: read by rules, or by a model.

The rules look at its words alone and are pure. A model reads it in a small run of one agent step, which is
as durable and limited as any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from onward.model.chat import BY_RULES, INTENTS, SCOPES, ChatScope, Intent, MessageReading
from onward.model.ids import derived_run_id
from onward.model.run import Run, RunStatus

_WORD = re.compile(r"[a-z][a-z'’-]*")
_ASKING = frozenset(
    [
        "what",
        "why",
        "how",
        "when",
        "where",
        "who",
        "which",
        "whose",
        "is",
        "are",
        "was",
        "were",
        "does",
        "do",
        "did",
        "can",
        "could",
        "should",
        "would",
        "will",
        "has",
        "have",
    ]
)
_PLEASE = re.compile(r"^(can|could|would|will) (you|we)\b")
_NEW = frozenset(["build", "create", "new", "scratch", "generate", "scaffold", "bootstrap", "start"])
_MAKING = _NEW | frozenset(
    ["make", "add", "implement", "write", "design", "develop", "set", "put", "want", "need", "give"]
)
_MENDING = frozenset(
    [
        "fix",
        "bug",
        "bugs",
        "broken",
        "breaks",
        "broke",
        "repair",
        "error",
        "errors",
        "crash",
        "crashes",
        "crashed",
        "fails",
        "failing",
        "failed",
        "wrong",
        "issue",
        "issues",
        "problem",
        "doesn't",
        "doesn’t",
        "isn't",
        "isn’t",
        "won't",
        "won’t",
        "can't",
        "can’t",
        "change",
        "update",
        "adjust",
        "tweak",
        "rename",
        "remove",
        "replace",
        "move",
        "correct",
        "improve",
        "refactor",
        "undo",
        "revert",
    ]
)
_PARTS: dict[ChatScope, frozenset[str]] = {
    ChatScope.STYLING: frozenset(
        [
            "style",
            "styles",
            "styling",
            "css",
            "color",
            "colors",
            "colour",
            "colours",
            "font",
            "fonts",
            "theme",
            "dark-mode",
            "spacing",
            "margin",
            "padding",
            "layout",
            "animation",
            "rounded",
            "shadow",
            "typography",
            "blue",
            "red",
            "green",
            "bigger",
            "smaller",
        ]
    ),
    ChatScope.BACKEND: frozenset(
        [
            "backend",
            "api",
            "apis",
            "endpoint",
            "endpoints",
            "server",
            "database",
            "db",
            "sql",
            "table",
            "tables",
            "auth",
            "login",
            "authentication",
            "migration",
            "migrations",
            "queue",
            "webhook",
            "webhooks",
            "cron",
            "model",
            "schema",
        ]
    ),
    ChatScope.FRONTEND: frozenset(
        [
            "frontend",
            "page",
            "pages",
            "button",
            "buttons",
            "form",
            "forms",
            "navbar",
            "header",
            "footer",
            "menu",
            "component",
            "components",
            "modal",
            "ui",
            "landing",
            "hero",
            "sidebar",
            "html",
            "react",
            "view",
            "screen",
        ]
    ),
}

_WHOLE = frozenset(["page", "pages", "landing", "site", "website", "app", "shop", "blog", "portfolio"])
"""What is built as a whole, unless a part of it is named outright."""
_OUTRIGHT = frozenset(["frontend", "backend", "html", "api", "only"])


def read_by_rules(text: str, *, has_files: bool) -> MessageReading:
    """What a message is taken for. Where there are files, a wish for a change is about those."""
    lowered = text.strip().lower()
    words = _WORD.findall(lowered)
    intent = _intent(lowered, words, has_files=has_files)
    return MessageReading(intent=intent, scope=_scope(words, intent), by=BY_RULES, has_files=has_files)


def _intent(text: str, words: list[str], *, has_files: bool) -> Intent:
    known = set(words)
    is_asked = text.endswith("?") or (bool(words) and words[0] in _ASKING)
    is_polite = _PLEASE.match(text) is not None
    if is_asked and not is_polite and not known & _NEW:
        return Intent.QUESTION
    if known & _MENDING and not known & _NEW:
        return Intent.FIX
    if has_files and not known & _NEW:
        return Intent.FIX
    if is_asked and not known & (_MAKING | _MENDING):
        return Intent.QUESTION
    return Intent.BUILD


def _scope(words: list[str], intent: Intent) -> ChatScope:
    """The only part that is named. What is built anew and looks somehow is not only styling, and a page that
    is built anew needs all of its parts."""
    known = set(words)
    if intent is Intent.BUILD and known & _WHOLE and not known & _OUTRIGHT:
        return ChatScope.FULL
    named = [part for part, of_it in _PARTS.items() if known & of_it]
    if len(named) == 1 and not (intent is Intent.BUILD and named[0] is ChatScope.STYLING):
        return named[0]
    if intent is not Intent.BUILD and set(named) == {ChatScope.STYLING, ChatScope.FRONTEND}:
        return ChatScope.STYLING
    return ChatScope.FULL


NODE = "read"
SCHEMA = {
    "type": "object",
    "properties": {"intent": {"enum": list(INTENTS)}, "scope": {"enum": list(SCOPES)}},
    "required": ["intent", "scope"],
    "additionalProperties": False,
}
PROMPT = """A user of a builder of software sent this message:

${context.user_message}

There are files of the project already: ${context.has_files}

Say what the message wants (intent): build is something new, fix is a change of what is there, question \
is an answer and no change. Say which part it is about (scope): frontend, backend, styling, or full if it \
is about several or about none in particular."""


def reading_source(classifier: str) -> str:
    """The pipeline in which a model, `provider:model`, reads a message."""
    provider, _, model = classifier.rpartition(":")
    attributes = {
        "prompt": PROMPT,
        "output_schema": json.dumps(SCHEMA),
        "llm_model": model,
        **({"llm_provider": provider} if provider else {}),
    }
    written = ", ".join(f"{name}={_quoted(value)}" for name, value in attributes.items())
    return (
        'digraph onward_reading {\n  graph [goal="read a message"]\n'
        f"  start [shape=Mdiamond]\n  exit [shape=Msquare]\n  {NODE} [{written}]\n"
        f"  start -> {NODE} -> exit\n}}\n"
    )


def reading_run(message: str, at_us: int) -> str:
    """The id of the run in which a model reads a message."""
    return derived_run_id(at_us, f"reading of message {message}")


def read_by_model(run: Run, classifier: str, by_rules: MessageReading) -> MessageReading:
    """What a model made of a message; what rules make of it, if the model's run did not get there."""
    found = _answer(run.context) if run.status is RunStatus.COMPLETED else None
    if found is None:
        why = run.reason or run.status.value
        return replace(by_rules, by=f"{BY_RULES}, because {classifier} did not answer ({why})")
    intent, scope = found
    return replace(by_rules, intent=intent, scope=scope, by=classifier)


def _answer(context: Mapping[str, Any]) -> tuple[Intent, ChatScope] | None:
    intent, scope = context.get(f"{NODE}.intent"), context.get(f"{NODE}.scope")
    if intent not in INTENTS or scope not in SCOPES:
        return None
    return Intent(intent), ChatScope(scope)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

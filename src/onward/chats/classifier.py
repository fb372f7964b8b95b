"""Reading a message with a model: a small run of one agent step, as durable and limited as any other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from onward.model.chat import BY_RULES, INTENTS, SCOPES, ChatScope, Intent, MessageReading
from onward.model.ids import derived_run_id
from onward.model.run import Run, RunStatus

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

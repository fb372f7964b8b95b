"""What an agent is told about its result, and how its answer is read.

The answer is free text. It may end with a few lines that even a small model can write:

    OUTCOME: success | partial_success | retry | fail
    NEXT: the label of an edge, or the name of the next node
    SET key = value
    NOTE: one line for people

or with one fenced block of JSON with the same facts. A line that is not one of these is part of the text.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from onward.errors import InvalidInput
from onward.handlers.function import RESPONSE_CHARACTERS
from onward.model.context import check_value
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.pipeline.graph import Edge

LINES_MAX = 40
"""How many lines at the end of an answer may be facts."""
_LINE = re.compile(r"\s*(?:[-*]\s*)?\**(OUTCOME|NEXT|NOTE|SET)\**\s*:?\**\s*(.*?)\**\s*$", re.IGNORECASE)
_SET = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*)")
_FENCE = "```"
_OPENING = re.compile(r"```(?:json|status|onward)?[ \t\r]*\n")
OUTCOMES = {status.value: status for status in StepStatus if status is not StepStatus.SKIPPED}
_KNOWN = {
    "outcome",
    "status",
    "preferred_label",
    "preferred_next_label",
    "suggested_next_ids",
    "context_updates",
}
_KNOWN |= {"notes", "failure_reason", "next"}


class Facts(msgspec.Struct):
    """What an answer says about its step beside the text."""

    status: StepStatus = StepStatus.SUCCESS
    label: str = ""
    next_ids: tuple[str, ...] = ()
    updates: dict[str, Any] = msgspec.field(default_factory=dict)
    notes: str = ""
    reason: str = ""


class Unreadable(ValueError):
    """An answer's facts cannot be used; the text says what is wrong, for the model to correct."""


def instructions(edges: tuple[Edge, ...]) -> str:
    """What the agent is told: only what its node can use."""
    lines = [
        "Answer the request. If you could not do what was asked, end your answer with a line "
        "`OUTCOME: fail` and a line `NOTE:` with the reason."
    ]
    labels = [edge.label for edge in edges if edge.label]
    if len(labels) > 1:
        lines.append("End your answer with a line `NEXT:` and one of these words: " + ", ".join(labels) + ".")
    lines.append("To hand a value to later steps, add a line `SET name = value`.")
    return "\n".join(lines)


def read_answer(text: str, node_id: str) -> Result:
    """The result that an answer means; Unreadable if its facts contradict the contract."""
    body, facts = _split(text)
    updates = {"last_stage": node_id, "last_response": body[:RESPONSE_CHARACTERS], **facts.updates}
    is_failure = facts.status in (StepStatus.FAIL, StepStatus.RETRY)
    return Result(
        status=facts.status,
        context_updates=updates,
        preferred_label=facts.label,
        suggested_next_ids=facts.next_ids,
        notes=facts.notes,
        failure_reason=(facts.reason or facts.notes or body[:RESPONSE_CHARACTERS]) if is_failure else "",
        response=text,
        is_decided=facts.status is not StepStatus.SUCCESS,
    )


def _split(text: str) -> tuple[str, Facts]:
    block = _block(text)
    if block is not None:
        return text[: block[0]].rstrip(), _from_json(block[1])
    lines = text.rstrip().splitlines()
    facts, at = Facts(), len(lines)
    while at > max(0, len(lines) - LINES_MAX) and (not lines[at - 1].strip() or _LINE.match(lines[at - 1])):
        at -= 1
    for line in lines[at:]:
        found = _LINE.match(line)
        if found is not None:
            _take(facts, found.group(1).upper(), found.group(2).strip())
    return "\n".join(lines[:at]).rstrip(), facts


def _block(text: str) -> tuple[int, str] | None:
    """The fenced object at the end of an answer, and where its fence begins; None if it ends otherwise."""
    ended = text.rstrip()
    if not ended.endswith(_FENCE):
        return None
    inner = ended.removesuffix(_FENCE)
    openings = [*_OPENING.finditer(inner)]
    if not openings:
        return None
    last = openings[-1]  # what an earlier block holds is a part of the text
    content = inner[last.end() :].strip()
    return (last.start(), content) if content[:1] == "{" and content[-1:] == "}" else None


def _take(facts: Facts, name: str, value: str) -> None:
    match name:
        case "OUTCOME":
            facts.status = _outcome(value)
        case "NEXT":
            facts.label, facts.next_ids = value, (value,)
        case "NOTE":
            facts.notes = f"{facts.notes}\n{value}".strip()
        case _:
            found = _SET.fullmatch(value)
            if found is None:
                raise Unreadable(f"`SET {value}` is not `SET name = value`")
            facts.updates[found.group(1)] = _value(found.group(2))


def _outcome(value: object) -> StepStatus:
    word = str(value).strip().lower().replace(" ", "_")
    if word not in OUTCOMES:
        raise Unreadable(f"the outcome {str(value)[:40]!r} is none of {', '.join(OUTCOMES)}")
    return OUTCOMES[word]


def _value(text: str) -> Any:
    """JSON if it is some, else the text itself."""
    try:
        value = json.loads(text)
        check_value(value, "a value")
    except (ValueError, InvalidInput, RecursionError):
        return text
    return value


def _from_json(content: str) -> Facts:
    try:
        said = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the JSON at its end does not parse: {error}") from None
    return facts_of(said) if isinstance(said, dict) else Facts()


def facts_of(said: dict[str, Any]) -> Facts:
    """The facts in an object; none if it is a part of the answer that happens to be JSON."""
    if not said.keys() & _KNOWN:
        return Facts()
    updates = said.get("context_updates") or {}
    if not isinstance(updates, dict):
        raise Unreadable("context_updates in the JSON at its end is not an object")
    next_ids = said.get("suggested_next_ids") or ([said["next"]] if said.get("next") else [])
    if not isinstance(next_ids, list):
        raise Unreadable("suggested_next_ids in the JSON at its end is not a list")
    label = said.get("preferred_label") or said.get("preferred_next_label") or said.get("next") or ""
    return Facts(
        status=_outcome(said.get("outcome") or said.get("status") or "success"),
        label=str(label),
        next_ids=tuple(str(one) for one in next_ids),
        updates=updates,
        notes=str(said.get("notes") or ""),
        reason=str(said.get("failure_reason") or ""),
    )

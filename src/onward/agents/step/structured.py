"""Structured answers: JSON of a schema that the node gives, checked, and values for later steps."""

from __future__ import annotations

import json
import re
from typing import Any

from onward.agents.step.contract import Unreadable, facts_of
from onward.agents.tools.schema import check_schema, problems
from onward.errors import InvalidInput
from onward.handlers.function import RESPONSE_CHARACTERS
from onward.model.context import check_value
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.pipeline.graph import Node

SCHEMA = "output_schema"
ONLY_JSON = "Answer with one JSON value that fits this JSON Schema, and nothing else:"
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


def schema_of(node: Node) -> dict[str, Any] | None:
    """The schema of a node's answers; None if any text will do. InvalidInput: what it has is no schema."""
    written = node.text(SCHEMA)
    if not written:
        return None
    where = f"{SCHEMA} of node {node.id!r}"
    try:
        schema = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where} is not JSON: {error}; write a JSON Schema.") from None
    check_schema(schema, where)
    assert isinstance(schema, dict)
    return schema


def instruction(schema: dict[str, Any]) -> str:
    """What the agent is told, also where the provider holds it to the schema."""
    return f"{ONLY_JSON}\n{json.dumps(schema, ensure_ascii=False)}"


def read_structured(text: str, node_id: str, schema: dict[str, Any]) -> Result:
    """The result that a structured answer means; Unreadable if it does not fit.

    Later steps find every field of the object under `NODE.field`, and all of it as JSON under `NODE.answer`.
    Fields that decide about the step (`outcome`, `preferred_label`, `context_updates`, …) do so.
    """
    value = _parsed(text)
    if wrong := problems(schema, value):
        raise Unreadable("; ".join(wrong))
    fields = value if isinstance(value, dict) else {}
    facts = facts_of(fields)
    is_failure = facts.status in (StepStatus.FAIL, StepStatus.RETRY)
    updates = {
        "last_stage": node_id,
        "last_response": text.strip()[:RESPONSE_CHARACTERS],
        f"{node_id}.answer": value,
        **{f"{node_id}.{name}": one for name, one in fields.items()},
        **facts.updates,
    }
    return Result(
        status=facts.status,
        context_updates=updates,
        preferred_label=facts.label,
        suggested_next_ids=facts.next_ids,
        notes=facts.notes,
        failure_reason=(facts.reason or facts.notes or text[:RESPONSE_CHARACTERS]) if is_failure else "",
        response=text,
        is_decided=facts.status is not StepStatus.SUCCESS,
    )


def _parsed(text: str) -> Any:
    fenced = _FENCED.fullmatch(text)
    try:
        value = json.loads(fenced.group(1) if fenced else text)
        check_value(value, "the answer")
    except (ValueError, RecursionError, InvalidInput) as error:
        raise Unreadable(f"it is not JSON: {error}") from None
    return value

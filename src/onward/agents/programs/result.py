"""The result of a step from the recorded answer of a turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from onward.agents.step.contract import read_answer
from onward.handlers.function import RESPONSE_CHARACTERS
from onward.model.result import Result


def read_turn(answer: Any, node_id: str) -> Result:
    """The result that an answer means; Unreadable if its facts contradict the contract.

    Facts that the program gave apart count instead of lines in its text. A person who said what came of a
    turn in doubt may have said anything.
    """
    text, facts = _parts(answer)
    if not facts:
        return read_answer(text, node_id)
    told = read_answer(f"```json\n{msgspec.json.encode(facts).decode()}\n```", node_id)
    shown = text[:RESPONSE_CHARACTERS]
    updates = {**told.context_updates}
    if not facts.get("context_updates", {}).get("last_response"):
        updates["last_response"] = shown
    is_failure = bool(told.failure_reason) or told.status.value in ("fail", "retry")
    reason = (told.failure_reason or shown) if is_failure else ""
    return replace(told, response=text, context_updates=updates, failure_reason=reason)


def _parts(answer: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(answer, dict) and isinstance(answer.get("text"), str):
        facts = answer.get("facts")
        return answer["text"], facts if isinstance(facts, dict) else {}
    return answer if isinstance(answer, str) else "" if answer is None else msgspec.json.encode(
        answer
    ).decode(), {}

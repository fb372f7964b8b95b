"""Simulated agents that follow a script, to try and test pipelines without a model.

A script maps a node to a list of entries; the nth execution of the node takes the nth entry, and the last one
repeats. A node without entries succeeds. The run's log has the number of the execution, so a resumed run
continues in the script where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from onward.errors import InvalidInput
from onward.handlers.function import text_result
from onward.handlers.port import StepContext
from onward.model.event import StepStatus
from onward.model.result import Result
from onward.model.values.bounds import DURATION_S_MAX


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scripted execution."""

    status: StepStatus = StepStatus.SUCCESS
    text: str | None = None
    context_updates: dict[str, Any] = {}
    preferred_label: str = ""
    suggested_next_ids: tuple[str, ...] = ()
    delay_ms: Annotated[float, msgspec.Meta(ge=0, le=DURATION_S_MAX * 1000)] = 0
    error: str = ""


def check_script(script: object, where: str) -> dict[str, list[Any]]:
    """The script itself, for storing; InvalidInput says what is wrong with it."""
    try:
        msgspec.convert(script, dict[str, list[Entry]])
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"{where} is not a simulation script: {error}; "
            f"write {{node: [{{{', '.join(Entry.__struct_fields__)}}}, …]}}."
        ) from None
    return script  # type: ignore[return-value]


class ScriptedError(Exception):
    """The error that an entry asks for."""


class SimulatedAgent:
    """Simulates an agent from a script."""

    keeps_time = False

    def __init__(self, script: Mapping[str, Any]) -> None:
        self._entries = msgspec.convert(dict(script), dict[str, list[Entry]])

    async def run(self, step: StepContext) -> Result:
        entries = self._entries.get(step.node.id)
        entry = entries[min(step.execution, len(entries)) - 1] if entries else Entry()
        if entry.delay_ms > 0:
            await asyncio.sleep(entry.delay_ms / 1000)
        if entry.error:
            raise ScriptedError(entry.error)
        told = f", told: {' '.join(step.steering)}" if step.steering else ""
        text = entry.text if entry.text is not None else f"[simulated] {step.node.id} done{told}"
        said = text_result(text, step.node.id).context_updates
        return Result(
            status=entry.status,
            context_updates={**said, **entry.context_updates},
            preferred_label=entry.preferred_label,
            suggested_next_ids=entry.suggested_next_ids,
            response=text,
            failure_reason=text if entry.status in (StepStatus.FAIL, StepStatus.RETRY) else "",
        )

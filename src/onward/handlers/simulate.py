"""Simulated steps that follow a script, to try and test pipelines without a model and without effects.

A script maps a node to a list of entries; the nth execution of the node takes the nth entry, and the last one
repeats. A node without entries succeeds. The run's log has the number of the execution, so a resumed run
continues in the script where it stopped. docs/simulation.md describes the format.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from onward.errors import InvalidInput, InvalidScript
from onward.handlers.port import StepContext, text_result
from onward.model.context import check_updates
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.model.values import DURATION_S_MAX

FAILURES = (StepStatus.FAIL, StepStatus.RETRY)
ONLY_TOOLS = ("exit_code", "stdout", "stderr")


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scripted execution. `exit_code`, `stdout` and `stderr` are for tools, `text` for all others."""

    status: StepStatus | None = None
    text: str | None = None
    context_updates: dict[str, Any] = {}
    preferred_label: str = ""
    suggested_next_ids: tuple[str, ...] = ()
    delay_ms: Annotated[float, msgspec.Meta(ge=0, le=DURATION_S_MAX * 1000)] = 0
    error: str = ""
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    stdout: str | None = None
    stderr: str = ""


def check_script(script: object) -> dict[str, list[Any]]:
    """The script itself, for storing; InvalidScript says what is wrong with it, and where."""
    if not isinstance(script, dict):
        raise InvalidInput("write an object with a list for each node")
    for node, entries in script.items():
        if not isinstance(node, str):
            raise InvalidScript((), f"{node!r} is not the name of a node")
        if not isinstance(entries, list):
            raise InvalidScript((node,), f"write a list of entries, such as {node}: [{{}}]")
        for number, entry in enumerate(entries):
            _check_entry(entry, (node, number))
    return script


def _check_entry(entry: object, place: tuple[str, int]) -> None:
    try:
        found = msgspec.convert(entry, Entry)
        check_updates(found.context_updates)
    except msgspec.ValidationError as error:
        fields = ", ".join(Entry.__struct_fields__)
        raise InvalidScript(place, f"{error}; an entry has {fields}") from None
    except InvalidInput as error:
        raise InvalidScript(place, str(error).removesuffix(".")) from None
    if found.exit_code and found.status not in (None, *FAILURES):
        raise InvalidScript(
            place, f"exit_code {found.exit_code} and status {found.status} contradict each other"
        )


def check_fields(entry: Mapping[str, Any], place: tuple[str, int], *, is_tool: bool) -> None:
    """Refuse an entry with fields that its node cannot play."""
    wrong = next((name for name in ONLY_TOOLS if name in entry), None)
    if not is_tool and wrong is not None:
        raise InvalidScript(place, f"{wrong} is for tools, which {place[0]} is not; write status and text")
    if is_tool and "text" in entry:
        raise InvalidScript(place, "text is not for tools; write stdout")


class ScriptedError(Exception):
    """The error that an entry asks for."""


class _Script:
    """Entries by node."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        self._entries = msgspec.convert(dict(script), dict[str, list[Entry]])

    async def entry(self, step: StepContext) -> Entry:
        """What this execution of the node plays, after its delay; raises the error that it asks for."""
        entries = self._entries.get(step.node.id)
        entry = entries[min(step.execution, len(entries)) - 1] if entries else Entry()
        if entry.delay_ms > 0:
            await asyncio.sleep(entry.delay_ms / 1000)
        if entry.error:
            raise ScriptedError(entry.error)
        return entry


class SimulatedAgent:
    """Plays an agent, or a handler of the app, from a script."""

    keeps_time = False

    def __init__(self, script: Mapping[str, Any]) -> None:
        self._script = _Script(script)

    async def run(self, step: StepContext) -> Result:
        _ = step.prompt  # logs what it names and the context does not have, as for a real agent
        entry = await self._script.entry(step)
        told = f", told: {' '.join(step.steering)}" if step.steering else ""
        text = entry.text if entry.text is not None else f"[simulated] {step.node.id} done{told}"
        status = entry.status or StepStatus.SUCCESS
        said = text_result(text, step.node.id).context_updates
        return Result(
            status=status,
            context_updates={**said, **entry.context_updates},
            preferred_label=entry.preferred_label,
            suggested_next_ids=entry.suggested_next_ids,
            response=text,
            failure_reason=text if status in FAILURES else "",
        )


class SimulatedTool:
    """Plays a command from a script; no command and no hook of it is executed."""

    keeps_time = False

    def __init__(self, script: Mapping[str, Any]) -> None:
        self._script = _Script(script)

    async def run(self, step: StepContext) -> Result:
        entry = await self._script.entry(step)
        output = entry.stdout if entry.stdout is not None else f"[simulated] {step.node.id} done"
        status = entry.status or (StepStatus.FAIL if entry.exit_code else StepStatus.SUCCESS)
        code = entry.exit_code or 0
        said = entry.stderr.strip()
        return Result(
            status=status,
            context_updates={"tool.output": output, **entry.context_updates},
            preferred_label=entry.preferred_label,
            suggested_next_ids=entry.suggested_next_ids,
            failure_reason=f"exit code {code}" + (f": {said}" if said else "") if status in FAILURES else "",
        )

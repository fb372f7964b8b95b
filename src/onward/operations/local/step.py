"""One step from a store, with what it left in its directories on this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from onward.errors import OnwardError
from onward.machine.definition import AGENT, Definition
from onward.model.attempt.output import LINES_MAX, STDERR, STDOUT, LastOutput, PrintedLine
from onward.model.ids import display_id
from onward.model.run import Run
from onward.operations.local.artifacts import view_artifact
from onward.operations.replies.pages import StepPage
from onward.pipeline.graph import Node
from onward.read.log.step import Step, Try
from onward.read.one_step import StepHistory
from onward.read.steps import view_output, view_step
from onward.receipts.entry import closing
from onward.receipts.folder import Folder
from onward.receipts.names import OUTPUT_ENDING, PROMPT, Path, attempt_path
from onward.receipts.places import RECEIPTS, flow_name, step_file

if TYPE_CHECKING:
    from onward.engine.control.sources import Sources

TAIL_BYTES, PROMPT_BYTES_MAX = 1 << 16, 1 << 20


class Served(msgspec.Struct, frozen=True):
    """The node of a step, and what serves it."""

    node: Node
    kind: str


async def served(sources: Sources, run: Run, history: StepHistory, node_id: str) -> Served | None:
    """What the step's definition says of it; None if that cannot be prepared here."""
    try:
        pipeline = await sources.stored(replace(run, pipeline_hash=history.pipeline_hash))
        definition = Definition(pipeline.graph)
        return Served(definition.graph.nodes[node_id], definition.kind(node_id))
    except (OnwardError, KeyError):  # a transform or a handler of an app that is not named here
        return None


class StepView(msgspec.Struct, frozen=True):
    """Views one step. `runs` has the directories of runs; None if there are none here."""

    run: Run
    step: Step
    history: StepHistory
    served: Served | None
    runs: Folder | None

    def page(self, status: str, visits: list[str]) -> StepPage:
        """Everything about the step."""
        finished, onward = self.history.finished, self.history.finished and self.history.finished.next
        places = [self._place(*one) for one in zip(self.step.tries, self.history.recorded_in, strict=True)]
        shown = view_step(self.step, status)
        stored = {} if finished is None else finished.artifacts
        page: dict[str, Any] = {
            **shown,
            "run": self.run.id,
            "display_id": display_id(self.run.id),
            "pipeline": self.run.pipeline,
            "visits": visits,
            "handler": None if self.served is None else self.served.kind,
            "command": None if self.served is None else self.served.node.text("tool_command") or None,
            "prompt": self._prompt(places),
            "question": self.step.text or None,
            "response": None if finished is None else finished.response or None,
            "notes": "" if finished is None else finished.outcome.notes,
            "next": {"to": onward.to, "reason": onward.reason} if onward else None,
            "context_before": dict(self.history.before),
            "context_after": None if self.history.after is None else dict(self.history.after),
            "changed": self.history.changed,
            "artifacts": [view_artifact(id, one) for id, one in stored.items() if one is not None],
            "artifacts_removed": [id for id, one in stored.items() if one is None],
            "tries": [
                {**view, **self._left(one, place)}
                for view, one, place in zip(shown["tries"], self.step.tries, places, strict=True)
            ],
            "receipt": self._receipt(),
        }
        return cast("StepPage", page)

    def _place(self, one: Try, recorded_in: str) -> Path | None:
        """The directory of a try, by its parts, if it is here."""
        parts = (recorded_in, *attempt_path(self.step.step, one.attempt, one.number))
        return parts if self._has(parts[:-1], parts[-1]) else None

    def _has(self, parts: Path, name: str) -> bool:
        try:
            return self.runs is not None and name in self.runs.names(parts)
        except OSError:  # something else is in the way
            return False

    def _left(self, one: Try, place: Path | None) -> dict[str, Any]:
        if self.runs is None or place is None:
            return {"directory": None}
        output = one.output or _last_lines(self.runs, place)
        return {"directory": self.runs.path(*place), "output": view_output(output)}

    def _prompt(self, places: list[Path | None]) -> str | None:
        """What the agent was asked: as it was written down for the last try, else as the pipeline says."""
        last = places[-1] if places else None
        if self.runs is not None and last is not None and self._has(last, PROMPT):
            content = self.runs.read(last, PROMPT, limit=PROMPT_BYTES_MAX)
            if content is not None:
                return content.decode(errors="replace")
        if self.served is None or self.served.kind != AGENT:
            return None
        return self.served.node.prompt or self.served.node.label

    def _receipt(self) -> str | None:
        if self.served is None or self.runs is None:
            return None
        agent = self.served.node.text("agent") or self.served.kind
        parts = (self.run.id, flow_name(self.run.pipeline), RECEIPTS)
        name = step_file(self.step.step, agent)
        return self.runs.path(*parts, name) if self._has(parts, name) else None


def _last_lines(runs: Folder, place: Path) -> LastOutput | None:
    """The end of each stream, from the files of a try."""
    lines = [
        PrintedLine(text, stream)
        for stream in (STDOUT, STDERR)
        for text in _tail(runs, place, stream + OUTPUT_ENDING)
    ]
    return LastOutput(lines=tuple(lines)) if lines else None


def _tail(runs: Folder, place: Path, name: str) -> list[str]:
    try:
        file = runs.open_plain(place, name)
    except OSError:
        return []
    if file is None:
        return []
    with closing(file):
        start = max(0, os.fstat(file).st_size - TAIL_BYTES)
        content = os.pread(file, TAIL_BYTES, start)
    lines = content.decode(errors="replace").splitlines()
    return (lines[1:] if start else lines)[-LINES_MAX:]

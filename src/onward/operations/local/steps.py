"""Steps as they are shown: their artifacts and calls, how far open ones have come, and one step in full.

The progress of an open step is read as whoever continues the step reads it. A step in full also has what it
left in its directories, if they are on this machine.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from onward.engine.call_log import CallMemory, read_memory
from onward.engine.journal import Journal
from onward.engine.log import Folded
from onward.engine.sources import Sources
from onward.entry import closing
from onward.errors import OnwardError, StoreCorrupt
from onward.machine.definition import AGENT, Definition
from onward.model.call import CallKind, Usage
from onward.model.chat import ChunkKind, Part
from onward.model.events import OUTPUT_LINES_MAX, STDERR, STDOUT, Artifact, LastOutput, PrintedLine
from onward.model.ids import display_id
from onward.model.run import OpenStep, Run, StepCalls
from onward.pipeline.graph import Node
from onward.read.log import Claim, Step, Try
from onward.read.step import LOST, OPEN, CallSeen, StepHistory, read_calls
from onward.read.view import instant, view_output, view_step, view_try
from onward.receipts import folder as folders
from onward.store.owner import owner_label
from onward.store.port.store import Store

if TYPE_CHECKING:
    from onward.replies import steps as step_shapes


def view_artifact(id: str, artifact: Artifact) -> step_shapes.ArtifactListed:
    """What is known of an artifact."""
    return {
        "id": id,
        "name": artifact.name,
        "size_bytes": artifact.size,
        "stored_at": instant(artifact.stored_at_us),
        "form": artifact.form,
        "step": artifact.step,
        "hash": artifact.hash,
    }


def view_content(id: str, artifact: Artifact, content: bytes | None) -> step_shapes.ArtifactContent:
    """An artifact with its content; `content` is None if the store has lost it."""
    if content is None:
        raise StoreCorrupt(f"the content of artifact {id!r} ({artifact.hash}) is missing or damaged.")
    shown: step_shapes.ArtifactContent = {**view_artifact(id, artifact), "content": "", "content_base64": ""}
    if artifact.form == "bytes":
        del shown["content"]
        shown["content_base64"] = base64.b64encode(content).decode()
    else:
        del shown["content_base64"]
        shown["content"] = content.decode()
    return shown


MICRO = 1_000_000


def view_call(call: CallSeen, *, is_gone: bool = False) -> step_shapes.CallListed:
    """One try of a call; its cost in units of money. `is_gone`: no process holds its run any more."""
    estimated = call.estimated
    return {
        "step": call.step,
        "attempt": call.attempt,
        "call": call.call,
        "try": call.number,
        "type": call.type,
        "name": call.name,
        "about": call.about,
        "state": call.state,
        "repeatable": call.repeatable,
        "began_at": instant(call.began_at_us),
        "ended_at": instant(call.ended_at_us),
        "duration_s": None if call.duration_us is None else call.duration_us / MICRO,
        "model": call.model,
        "usage": None if call.usage is None else _view_usage(call.usage),
        "cost": None if call.cost_micro is None else call.cost_micro / MICRO,
        "estimated": None
        if estimated is None
        else {"tokens": estimated.tokens, "cost": estimated.cost_micro / MICRO},
        "shortened_to": call.shortened_to or None,
        "is_gone": is_gone and call.state == OPEN,
        "request_id": call.request_id,
        "error": call.error,
        "note": call.note,
        "by": call.by,
    }


def _view_usage(usage: Usage) -> step_shapes.CallUsageShown:
    return {
        "input": usage.input,
        "output": usage.output,
        "cached": usage.cached,
        "reasoning": usage.reasoning,
        "cache_write": usage.cache_write,
    }


def shortened(calls: Iterable[CallSeen]) -> int | None:
    """The lowest ceiling that a limit left for an answer among these calls; None if it lowered none."""
    return min((call.shortened_to for call in calls if call.shortened_to), default=None)


ASKING = (CallKind.MODEL.value, CallKind.PROGRAM.value)


class ProgressView(msgspec.Struct, frozen=True):
    """Views the open steps of one run. `claim` is the last of the run."""

    store: Store
    journal: Journal
    sources: Sources
    folded: Folded
    claim: Claim

    async def steps(self) -> list[step_shapes.StepProgress]:
        """Those that have made a recorded call."""
        run = self.folded.run
        return [
            await self._step(run, opened, opened.calls)
            for opened in run.open_steps.values()
            if opened.calls is not None
        ]

    async def _step(self, run: Run, opened: OpenStep, calls: StepCalls) -> step_shapes.StepProgress:
        memory = await read_memory(self.journal, self.store.blobs, run, opened.step)
        parts = [part for call in memory.messages for part in await self._said(memory, call)]
        seen = await read_calls(self.store.log, run.id, after=calls.since, step=opened.step)
        rounds = sum(answer.type in ASKING for answer in memory.answers.values())
        holder = self.folded.holder
        is_held = holder is not None and holder.is_alive
        return {
            "step": opened.step,
            "attempt": opened.attempt,
            "state": opened.state.value,
            "model": memory.past.model,
            "rounds": rounds,
            "rounds_max": await self._rounds_max(run, opened.node) if memory.past.model else None,
            "message": next((said[-1] for said in reversed(memory.messages.values()) if said), None),
            "text": _joined(parts, ChunkKind.TEXT),
            "reasoning": _joined(parts, ChunkKind.REASONING),
            "calls": list(_calls(memory, calls, seen, is_held=is_held)),
            "held_by": owner_label(holder.owner) if holder is not None and is_held else None,
            "held_since": instant(self.claim.at_us) if is_held else None,
        }

    async def _said(self, memory: CallMemory, call: str) -> Iterable[Part]:
        """What the last try of a call said, of those that said anything."""
        for message in reversed(memory.messages[call]):
            if parts := await self.store.messages.content(message):
                return parts
        return ()

    async def _rounds_max(self, run: Run, node: str) -> int | None:
        """How many requests the step may take; None if its definition cannot be prepared here."""
        try:
            return (await self.sources.stored(run)).graph.nodes[node].rounds_max
        except (OnwardError, KeyError):  # a transform of an app that is not named here
            return None


def _joined(parts: Iterable[Part], kind: ChunkKind) -> str:
    return "".join(part.text for part in parts if part.kind is kind)


def _calls(
    memory: CallMemory, calls: StepCalls, seen: Iterable[CallSeen], *, is_held: bool
) -> Iterator[step_shapes.CallProgress]:
    """The last try of each call that is remembered, under way or in doubt, in the order they began."""
    last = {one.call: one for one in seen}
    for one in last.values():
        answer = memory.answers.get(one.call)
        if answer is None and one.call not in calls.open and one.call not in calls.lost:
            continue
        is_gone = one.state == OPEN and not is_held  # whoever continues the run records it as lost
        yield {
            "call": one.call,
            "type": one.type,
            "name": one.name,
            "state": LOST if is_gone else one.state,
            "result": None if answer is None or one.type in ASKING else answer.value,
        }


TAIL_BYTES, PROMPT_BYTES_MAX = 1 << 16, 1 << 20


class ServedNode(msgspec.Struct, frozen=True):
    """The node of a step, and what serves it."""

    node: Node
    kind: str


async def served(sources: Sources, run: Run, history: StepHistory, node_id: str) -> ServedNode | None:
    """What the step's definition says of it; None if that cannot be prepared here."""
    try:
        pipeline = await sources.stored(replace(run, pipeline_hash=history.pipeline_hash))
        definition = Definition(pipeline.graph)
        return ServedNode(definition.graph.nodes[node_id], definition.kind(node_id))
    except (OnwardError, KeyError):  # a transform or a handler of an app that is not named here
        return None


class StepView(msgspec.Struct, frozen=True):
    """Views one step. `runs` has the directories of runs; None if there are none here."""

    run: Run
    step: Step
    history: StepHistory
    served: ServedNode | None
    runs: folders.Folder | None

    def page(self, status: str, visits: list[str], shortened_to: int | None) -> step_shapes.StepPage:
        """Everything about the step; `shortened_to` is the lowest ceiling of an answer of its agent."""
        finished, onward = self.history.finished, self.history.finished and self.history.finished.next
        places = [self._place(*one) for one in zip(self.step.tries, self.history.recorded_in, strict=True)]
        stored = {} if finished is None else finished.artifacts
        return {
            **view_step(self.step, status),
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
            "tries": [self._try(*one) for one in zip(self.step.tries, places, strict=True)],
            "receipt": self._receipt(),
            "shortened_to": shortened_to,
        }

    def _place(self, one: Try, recorded_in: str) -> folders.Path | None:
        """The directory of a try, by its parts, if it is here."""
        parts = (recorded_in, *folders.attempt_path(self.step.step, one.attempt, one.number))
        return parts if self._has(parts[:-1], parts[-1]) else None

    def _has(self, parts: folders.Path, name: str) -> bool:
        try:
            return self.runs is not None and name in self.runs.names(parts)
        except OSError:  # something else is in the way
            return False

    def _try(self, one: Try, place: folders.Path | None) -> step_shapes.TryPage:
        if self.runs is None or place is None:
            return {**view_try(one), "directory": None}
        output = view_output(one.output or _last_lines(self.runs, place))
        return {**view_try(one), "output": output, "directory": self.runs.path(*place)}

    def _prompt(self, places: list[folders.Path | None]) -> str | None:
        """What the agent was asked: as it was written down for the last try, else as the pipeline says."""
        last = places[-1] if places else None
        if self.runs is not None and last is not None and self._has(last, folders.PROMPT):
            content = self.runs.read(last, folders.PROMPT, limit=PROMPT_BYTES_MAX)
            if content is not None:
                return content.decode(errors="replace")
        if self.served is None or self.served.kind != AGENT:
            return None
        return self.served.node.prompt or self.served.node.label

    def _receipt(self) -> str | None:
        if self.served is None or self.runs is None:
            return None
        agent = self.served.node.text("agent") or self.served.kind
        parts = (self.run.id, folders.flow_name(self.run.pipeline), folders.RECEIPTS)
        name = folders.step_file(self.step.step, agent)
        return self.runs.path(*parts, name) if self._has(parts, name) else None


def _last_lines(runs: folders.Folder, place: folders.Path) -> LastOutput | None:
    """The end of each stream, from the files of a try."""
    lines = [
        PrintedLine(text, stream)
        for stream in (STDOUT, STDERR)
        for text in _tail(runs, place, stream + folders.OUTPUT_ENDING)
    ]
    return LastOutput(lines=tuple(lines)) if lines else None


def _tail(runs: folders.Folder, place: folders.Path, name: str) -> list[str]:
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
    return (lines[1:] if start else lines)[-OUTPUT_LINES_MAX:]

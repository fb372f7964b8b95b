"""How far the open steps of a run have come, read as whoever continues them reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from onward.engine.calls.memory import CallMemory, read_memory
from onward.engine.control.sources import Sources
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.errors import OnwardError
from onward.model.call import CallKind
from onward.model.chats.message import ChunkKind, Part
from onward.model.run import OpenStep, Run, StepCalls
from onward.operations.replies.progress import CallProgress, StepProgress
from onward.read.calls import LOST, OPEN, CallSeen, read_calls
from onward.read.log.step import Claim
from onward.read.view import instant
from onward.store.owner import owner_label
from onward.store.port.store import Store

ASKING = (CallKind.MODEL.value, CallKind.PROGRAM.value)


class ProgressView(msgspec.Struct, frozen=True):
    """Views the open steps of one run. `claim` is the last of the run."""

    store: Store
    journal: Journal
    sources: Sources
    folded: Folded
    claim: Claim

    async def steps(self) -> list[StepProgress]:
        """Those that have made a recorded call."""
        run = self.folded.run
        return [
            await self._step(run, opened, opened.calls)
            for opened in run.open_steps.values()
            if opened.calls is not None
        ]

    async def _step(self, run: Run, opened: OpenStep, calls: StepCalls) -> StepProgress:
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
) -> Iterator[CallProgress]:
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

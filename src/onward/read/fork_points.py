"""Where a fork of a run can begin: the checkpoint before a step, and the newest ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import msgspec

from onward.errors import InvalidInput, StepNotFound
from onward.model.catalogue import CHECKPOINTS
from onward.model.events import Event, RunResumed, StepFinished
from onward.model.ids import is_in_step, node_of, place_of
from onward.model.run import Run
from onward.read.find_step import is_meant
from onward.read.log.kinds import step_of
from onward.read.lookup import CHECKPOINT_KINDS, log_pages, newest_first
from onward.store.codec import unseal
from onward.store.port.log import RunLog

NAMED_MAX = 10


class _Beginnings(msgspec.Struct):
    """For each step of a log, in order: the newest checkpoint when it began, or None if that does not lead
    to it, because a person had the run continue there (`resume --from`)."""

    newest: int = 0
    moved_to: str | None = None
    before: dict[str, int | None] = msgspec.field(default_factory=dict)

    def apply(self, seq: int, event: Event) -> None:
        step = step_of(event)
        if step is not None and step not in self.before and not is_in_step(step):
            is_led_to = self.moved_to != node_of(place_of(step))
            self.before[step] = self.newest if is_led_to else None
        if isinstance(event, RunResumed):
            self.moved_to = event.from_node
        if isinstance(event, CHECKPOINTS):
            self.newest, self.moved_to = seq, None


async def checkpoint_before(log: RunLog, run: Run, wanted: str) -> int:
    """The last checkpoint before a step: the one with this id, or the last visit of the node.

    A node that the run comes to next counts as well. StepNotFound if the run has not come to it.
    """
    found = _Beginnings()
    async for page in log_pages(log, run.id):
        for record in page:
            found.apply(record.seq, unseal(record))
    meant = [step for step in found.before if is_meant(step, wanted)]
    if not meant:
        if wanted in (branch.next_node for branch in run.branches.values()):
            return found.newest
        raise StepNotFound(wanted, list(found.before))
    seq = found.before[meant[-1]]
    if seq is None:
        raise InvalidInput(
            f"{meant[-1]} began because the run was resumed with --from, and no checkpoint of run {run.id} "
            "leads to it; fork with --checkpoint SEQ --no-run, and resume the fork with --from."
        )
    return seq


async def no_place_named(log: RunLog, run_id: str, head: int) -> InvalidInput:
    """The refusal of a fork that does not say where it begins: it names the newest checkpoints."""
    named = [text async for text in _newest(log, run_id, head)]
    shown = named[:NAMED_MAX]
    more = (
        f", and older ones (`onward checkpoints {run_id}` lists them all)" if len(named) > NAMED_MAX else ""
    )
    return InvalidInput(
        f"say where the fork of run {run_id} begins: --from STEP, or --checkpoint SEQ; "
        f"it has the checkpoints {', '.join(shown)}{more}."
    )


async def _newest(log: RunLog, run_id: str, head: int) -> AsyncIterator[str]:
    """The newest checkpoints in words, and one more than are named if there are more."""
    left = NAMED_MAX
    async for record in newest_first(partial(log.read, run_id), head, CHECKPOINT_KINDS):
        event = unseal(record)
        what = f"after {event.step}" if isinstance(event, StepFinished) else "its start"
        yield f"{record.seq} ({what})"
        left -= 1
        if left < 0:
            return

"""Find what a person typed (a run, its steps, a checkpoint), and read a log in pages.

Nothing is changed. The checkpoints are told in two ways: all of them, each with the whole state at it, and
where a fork can begin: the checkpoint before a step, and the newest ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from onward.errors import AmbiguousRun, InvalidInput, RunNotFound, StepNotFound, StoreCorrupt
from onward.machine.catalogue import CHECKPOINTS
from onward.machine.lifecycle import apply
from onward.model.events import Event, RunResumed, StepFinished
from onward.model.ids import EXACT, branch_of, called, is_in_step, node_of, place_of
from onward.model.run import Run, RunStatus
from onward.read.log import Projection, Step, step_of
from onward.read.view import instant, known_row
from onward.store.codec import unseal
from onward.store.port.log import RunLog, StoredEvent
from onward.store.port.runs import Listed, RunQuery, Runs

if TYPE_CHECKING:
    from onward.replies.steps import Checkpoint

PAGE, PAGE_FIRST = 1_000, 16
PAGE_RUNS_MIN = 100
NEAR_RUNS, NEAR_CHARACTERS, NEAR_CUTOFF = 100, 100, 0.7
"""Among how many runs a misspelt one is looked for; of six characters, one may be wrong."""
FINISHED = StepFinished.__name__
CHECKPOINT_KINDS = frozenset(kind.__name__ for kind in CHECKPOINTS)


class ReadLog(Protocol):
    """Reads one run's log: up to `limit` events that follow event `after`."""

    async def __call__(self, *, after: int, limit: int) -> Sequence[StoredEvent]: ...


async def find_run(runs: Runs, wanted: str) -> Listed:
    """The one run with this id, display id, or prefix of either, in this order; `id:ID` is only its id."""
    if wanted.startswith(EXACT):
        return await get_run(runs, wanted.removeprefix(EXACT))
    found = await runs.find(wanted)
    if not found:
        raise RunNotFound(wanted, await _near(runs, wanted))
    if len(found) > 1:
        raise AmbiguousRun(wanted, [f"{listed.row.display_id} ({listed.row.id})" for listed in found])
    return found[0]


async def get_run(runs: Runs, run_id: str) -> Listed:
    """The run with exactly this id, for programs; RunNotFound if there is none."""
    found = await runs.find(run_id)
    if not found or found[0].row.id != run_id:
        raise RunNotFound(run_id, "")
    return found[0]


async def _near(runs: Runs, wanted: str) -> str:
    """What one of the newest runs is called that a misspelt name may mean; empty if there is none."""
    names = {
        name: called(one.row.id)
        for one in await runs.list(RunQuery(limit=NEAR_RUNS))
        for name in (one.row.id, one.row.display_id)
    }
    near = get_close_matches(wanted[:NEAR_CHARACTERS].lower(), names, n=1, cutoff=NEAR_CUTOFF)
    return names[near[0]] if near else ""


async def list_runs(runs: Runs, query: RunQuery) -> Sequence[Listed]:
    """Runs by the status that they are shown with: a running run whose holder died is interrupted.

    It is stored as running until a process acts on it, so this looks through the running runs page by page.
    """
    statuses = set(query.statuses)
    if len(statuses & {RunStatus.INTERRUPTED, RunStatus.RUNNING}) != 1:
        return await runs.list(query)
    found: list[Listed] = []
    size = min(PAGE, max(PAGE_RUNS_MIN, query.limit))
    page = replace(query, statuses=tuple(statuses | {RunStatus.RUNNING}), limit=size)
    while len(found) < query.limit:
        listed = await runs.list(page)
        found += [one for one in listed if known_row(one.row, one.holder).status in statuses]
        if len(listed) < size:
            break
        page = replace(page, after=listed[-1].cursor)
    return found[: query.limit]


async def log_pages(log: RunLog, run_id: str, *, after: int = 0) -> AsyncIterator[Sequence[StoredEvent]]:
    """A log in pages, so that a long one is never in memory at once."""
    while page := await log.read(run_id, after=after, limit=PAGE):
        yield page
        after = page[-1].seq


async def read_projection(log: RunLog, run_id: str) -> Projection:
    """What the whole log says, read page by page."""
    projection = Projection()
    async for page in log_pages(log, run_id):
        for record in page:
            projection.apply(unseal(record), at_us=record.at_us)
    return projection


class _OfStep(msgspec.Struct, frozen=True):
    """What a status needs of the end of a step."""

    step: str


_STEP_DECODER = msgspec.json.Decoder(_OfStep)


async def completed_of(log: RunLog, run_id: str) -> list[str]:
    """The finished steps of a run, in order. Nothing else of the log is read, unless that is damaged."""
    try:
        return [_STEP_DECODER.decode(body).step for body in await log.bodies(run_id, FINISHED)]
    except (StoreCorrupt, msgspec.MsgspecError):
        pass  # reading event by event says which one it is
    return [
        event.step
        async for page in log_pages(log, run_id)
        for record in page
        if record.kind == FINISHED and isinstance(event := unseal(record), StepFinished)
    ]


async def newest_first(read: ReadLog, head: int, kinds: Collection[str]) -> AsyncIterator[StoredEvent]:
    """The records of these kinds, from event `head` back to the first.

    `read` reads one run's log. The first page is small, because callers mostly look for something near the
    end and stop when they have found it.
    """
    size = PAGE_FIRST
    while head > 0:
        after = max(0, head - size)
        for record in reversed(await read(after=after, limit=head - after)):
            if record.kind in kinds:
                yield record
        head, size = after, min(size * 4, PAGE)


async def last_checkpoint(log: RunLog, run_id: str, head: int) -> StoredEvent | None:
    """The newest checkpoint of a log that ends at `head`."""
    async for record in newest_first(partial(log.read, run_id), head, CHECKPOINT_KINDS):
        return record
    return None


def matching_steps(log: Projection, wanted: str) -> list[Step]:
    """The steps that are meant, in the order in which they started: one by its id, or every visit of a node.

    `test#2` is one step; `test` is every visit of the node, in whatever branch; `fan#1.a/test` every visit in
    that branch.
    """
    return [step for id, step in log.steps.items() if is_meant(id, wanted)]


def is_meant(step: str, wanted: str) -> bool:
    """Whether a person who types `wanted` means this step: by its id, its node, or its place in a branch.

    A question of a step is meant only by its id.
    """
    if is_in_step(step):
        return wanted == step
    at = place_of(step)
    return wanted in (step, at, node_of(at))


def get_steps(log: Projection, wanted: str) -> list[Step]:
    """The same; StepNotFound if there is none."""
    found = matching_steps(log, wanted)
    if not found:
        raise StepNotFound(wanted, list(log.steps))
    return found


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
            f"{meant[-1]} started because the run was resumed with --from, and no checkpoint of run {run.id} "
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
        f"name the point where the fork of run {run_id} starts: --from STEP, or --checkpoint SEQ; it has the "
        f"checkpoints {', '.join(shown)}{more}."
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


async def read_checkpoints(log: RunLog, run_id: str) -> AsyncIterator[Checkpoint]:
    """The checkpoints of a log in order, one at a time, because each has a whole context."""
    run: Run | None = None
    completed: list[str] = []
    async for page in log_pages(log, run_id):
        for record in page:
            event = unseal(record)
            run = apply(run, event, run_id=run_id, at_us=record.at_us, token=record.token)
            if isinstance(event, StepFinished):
                completed.append(event.node)
            if isinstance(event, CHECKPOINTS):
                yield _checkpoint(record, event, run, completed)


def _checkpoint(record: StoredEvent, event: Event, run: Run, completed: Sequence[str]) -> Checkpoint:
    branch = branch_of(event.step) if isinstance(event, StepFinished) else ""
    shown: Checkpoint = {
        "seq": record.seq,
        "at": instant(record.at_us),
        "branch": branch,
        "current_node": event.node if isinstance(event, StepFinished) else None,
        "next_node_id": run.branches[branch].next_node,
        "completed_nodes": list(completed),
        "context": run.branches[branch].context.plain(),
        "retry_counters": run.retries.plain(),
        "visited_outcomes": run.outcomes.plain(),
        "reroute_count": run.reroutes,
    }
    if not branch:
        del shown["branch"]
    return shown

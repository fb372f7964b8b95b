"""Find a run by what a person typed, and read its log in pages; nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from onward.errors import AmbiguousRun, RunNotFound
from onward.model.catalogue import CHECKPOINTS
from onward.model.events import StepFinished
from onward.model.ids import called
from onward.model.run import RunStatus
from onward.read.log.projection import Projection
from onward.read.view import known_row
from onward.store.codec import unseal
from onward.store.port.log import RunLog, StoredEvent
from onward.store.port.runs import Listed, RunQuery, Runs

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
    """The one run with this display id, id, or prefix of either, in this order."""
    found = await runs.find(wanted)
    if not found:
        raise RunNotFound(wanted, await _near(runs, wanted))
    if len(found) > 1:
        raise AmbiguousRun(wanted, [f"{listed.row.display_id} ({listed.row.id})" for listed in found])
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


async def completed_of(log: RunLog, run_id: str) -> list[str]:
    """The finished steps of a run, in order."""
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

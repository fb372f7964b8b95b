"""Looking at runs without touching them: finding one by what a person typed, and reading its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from onward.errors import AmbiguousRun, RunNotFound
from onward.model.event import CHECKPOINTS
from onward.read.view import completed_steps
from onward.store.port import Listed, Record, RunLog, Runs

PAGE = 1_000
CHECKPOINT_KINDS = frozenset(kind.__name__ for kind in CHECKPOINTS)


async def find_run(runs: Runs, wanted: str) -> Listed:
    """The one run that answers to a display id, an id, or the beginning of either, in this order."""
    found = await runs.find(wanted)
    if not found:
        raise RunNotFound(wanted)
    if len(found) > 1:
        raise AmbiguousRun(wanted, [f"{listed.row.display_id} ({listed.row.id})" for listed in found])
    return found[0]


async def log_pages(log: RunLog, run_id: str, *, after: int = 0) -> AsyncIterator[Sequence[Record]]:
    """A log in pages, so that a long one never has to be in memory at once."""
    while page := await log.read(run_id, after=after, limit=PAGE):
        yield page
        after = page[-1].seq


async def completed_of(log: RunLog, run_id: str) -> list[str]:
    """The finished steps of a run, in order."""
    return [step async for page in log_pages(log, run_id) for step in completed_steps(page)]


async def last_checkpoint(log: RunLog, run_id: str, head: int) -> Record | None:
    """The newest checkpoint of a log that ends at `head`, read from its end."""
    size = 16
    while head > 0:
        after = max(0, head - size)
        records = await log.read(run_id, after=after, limit=head - after)
        found = [record for record in records if record.kind in CHECKPOINT_KINDS]
        if found:
            return found[-1]
        head, size = after, size * 4
    return None

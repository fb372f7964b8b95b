"""Reading runs: rows, logs across forks, snapshots and blobs.

No transaction holds the parts of a read together, because the log itself does: events never change, and each
part is read up to the end that the row named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from onward.errors import HistoryCorrupt
from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.store import rows
from onward.store.port import TAIL_MAX, Listed, Loaded, Record, RunQuery, Snapshot, Wanted
from onward.store.postgres.link.binary import texts
from onward.store.postgres.link.failure import ServerError
from onward.store.postgres.link.wire import Rows, Wire
from onward.store.postgres.statements import Call, call

UNLIMITED = 2**62
DAMAGED = frozenset({"XX001", "XX002"})


async def read_records(
    wire: Wire, run_id: str, after: int, *, upto: int = UNLIMITED, limit: int = UNLIMITED
) -> Sequence[Record]:
    """A run's log; below its fork point that is its parent's."""
    own, forks = await _events(wire, run_id, after, upto, limit)
    parent, parent_seq = fork_of(forks)
    shared: Sequence[Record] = ()
    if parent and after < parent_seq:
        shared = await read_records(wire, parent, after, upto=min(upto, parent_seq), limit=limit)
    return [*shared, *await with_values(wire, own[: limit - len(shared)])]


async def _events(wire: Wire, run_id: str, after: int, upto: int, limit: int) -> Sequence[Rows]:
    """The run's own events, and where it was forked."""
    calls = events_call(run_id, after, upto, limit), call("run_fork", id=run_id)
    try:
        return await wire.run(*calls)
    except ServerError as error:
        if error.sqlstate not in DAMAGED or limit == 1:
            raise
        unreadable, why = await _first_unreadable(wire, run_id, after), str(error)
    raise HistoryCorrupt(run_id, unreadable, f"the database cannot read it ({why})")


async def _first_unreadable(wire: Wire, run_id: str, after: int) -> int:
    """Damage is found by stepping up to it, one event at a time."""
    try:
        while own := (await _events(wire, run_id, after, UNLIMITED, 1))[0]:
            after = own[0][1]
    except ServerError:
        pass  # it is here
    return after + 1


def events_call(run_id: str, after: int, upto: int = UNLIMITED, limit: int = UNLIMITED) -> Call:
    """Asks for events of a run's own log."""
    return call("event_read", run_id=run_id, after=after, upto=upto, limit=limit)


def fork_of(found: Rows) -> tuple[str | None, int]:
    """Which run this one was forked from, and where."""
    return (found[0][0], found[0][1] or 0) if found else (None, 0)


async def with_values(wire: Wire, own: Rows) -> Sequence[Record]:
    """Events as records, with the large values they name."""
    found = await read_blobs(wire, {name for columns in own for name in rows.values_of(columns[8])})
    return [rows.record_of(columns, found) for columns in own]


async def read_blobs(wire: Wire, names: Iterable[str]) -> dict[str, bytes]:
    """The contents that are there and are what their names say."""
    wanted = list(names)
    if not wanted:
        return {}
    answers = await wire.run(*(call("blob_get", hash=name) for name in wanted))
    contents = {
        name: rows.unpack(name, *found[0]) for name, found in zip(wanted, answers, strict=True) if found
    }
    return {name: content for name, content in contents.items() if content is not None}


def snapshot_call(run_id: str, seq_max: int, fold_version: int) -> Call:
    """Asks for the snapshot of a run."""
    return call("snapshot_find", run_id=run_id, seq_max=seq_max, fold_version=fold_version)


async def _inherited(wire: Wire, row: RunRow, fold_version: int) -> Snapshot | None:
    """The newest fold of the run that this one was forked from, or of its parents, not past the fork."""
    parent, seq_max = row.parent, row.parent_seq or 0
    while parent:
        found, forks = await wire.run(
            snapshot_call(parent, seq_max, fold_version), call("run_fork", id=parent)
        )
        if found:
            return rows.snapshot_of(found[0])
        parent, parent_seq = fork_of(forks)
        seq_max = min(seq_max, parent_seq)
    return None


async def find_due(wire: Wire, wanted: Wanted, now_us: int | None) -> str | None:
    """Lock the run whose turn it is, passing over pipelines that have as many runs held as they may.

    Whoever takes a run of a pipeline with a ceiling waits here for others who do, and then counts.
    """
    full: list[str] = []
    while True:
        left = {"unserved": wanted.unserved, "skipped": wanted.skipped, "full": full}
        lists = {name: texts(names) for name, names in left.items()}
        (found,) = await wire.run(call("run_due", now_us=now_us, **lists))
        if not found:
            return None
        run_id, pipeline, max_running = found[0]
        if max_running is None:
            return str(run_id)
        await wire.run(call("ceiling_lock", pipeline=pipeline))
        ((used,),) = (await wire.run(call("ceiling_used", pipeline=pipeline)))[0]
        if used < max_running:
            return str(run_id)
        full.append(pipeline)


async def count_runs(wire: Wire) -> dict[RunStatus, int]:
    """How many runs there are in each status."""
    (found,) = await wire.run(call("run_count"))
    return dict(rows.sound(found, rows.counted))


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads runs with their holders: `now_us` is the time to judge leases by, `is_alive` how to judge."""

    now_us: Callable[[], int | None]
    is_alive: Callable[[str, bool], bool]

    async def load(
        self, wire: Wire, run_id: str, fold_version: int, known: int | None = None
    ) -> Loaded | None:
        """A run's row, its holder, and the log after the newest usable snapshot, or after event `known`."""
        # The snapshot first: read later, it could be of an event that the row does not know yet.
        asked = [] if known is not None else [snapshot_call(run_id, UNLIMITED, fold_version)]
        *cached, found = await wire.run(*asked, self._get(run_id))
        if not found:
            return None
        listed, position, snapshot = self.listed(found[0]), rows.row_position(found[0]), None
        if cached:
            own = cached[0]
            snapshot = rows.snapshot_of(own[0]) if own else await _inherited(wire, listed.row, fold_version)
        after = known or (snapshot.seq if snapshot else 0)
        is_cut, is_due = position.seq - after > TAIL_MAX, bool(found[0][-2])
        tail = () if is_cut else await read_records(wire, run_id, after, upto=position.seq)
        return Loaded(listed.row, position, listed.holder, snapshot, tail, is_cut, is_due)

    async def find(self, wire: Wire, wanted: str) -> Sequence[Listed]:
        """By display id; else by id; else by prefix of either."""
        called, named, begun = await wire.run(
            call("run_by_display_id", wanted=wanted),
            self._get(wanted),
            call("run_by_prefix", wanted=wanted, above=wanted + "\U0010ffff"),
        )
        if named and not called:
            return [self.listed(named[0])]
        ids = [columns[0] for columns in called or (begun if wanted else [])]
        answers = await wire.run(*(self._get(run_id) for run_id in ids)) if ids else []
        return [self.listed(columns) for found in answers for columns in found]

    async def forks(self, wire: Wire, run_id: str) -> Sequence[Listed]:
        """The runs that came off this one, oldest first."""
        (ids,) = await wire.run(call("run_forks", parent=run_id))
        answers = await wire.run(*(self._get(columns[0]) for columns in ids)) if ids else []
        return rows.sound((columns for found in answers for columns in found), self.listed)

    async def list(self, wire: Wire, query: RunQuery) -> Sequence[Listed]:
        """Newest first."""
        statuses = texts([status.value for status in query.statuses]) if query.statuses else None
        (found,) = await wire.run(
            call(
                "run_list",
                statuses=statuses,
                pipeline=query.pipeline,
                limit=query.limit,
                now_us=self.now_us(),
            )
        )
        return rows.sound(found, self.listed)

    async def held(self, wire: Wire) -> Sequence[Listed]:
        """Every run that somebody owns, by id."""
        (found,) = await wire.run(call("run_held", now_us=self.now_us()))
        return sorted(rows.sound(found, self.listed), key=lambda listed: listed.row.id)

    def _get(self, run_id: str) -> Call:
        return call("run_get", id=run_id, now_us=self.now_us())

    def listed(self, columns: Sequence[Any]) -> Listed:
        """A row of `run_get` or `run_list`."""
        row = rows.run_row(columns)
        return Listed(row, rows.holder_of(row.owner, row.token, bool(columns[-1]), self.is_alive))

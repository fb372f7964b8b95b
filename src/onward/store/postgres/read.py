"""Read logs across forks, snapshots and blobs, and find the run that is due.

No transaction holds the pieces of a read together, because the log itself does: events never change, and each
piece is read up to the end that the row named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onward.errors import HistoryCorrupt
from onward.model.row import RunRow
from onward.store import rows
from onward.store.port.log import Snapshot, StoredEvent, TakeFilter
from onward.store.postgres.connection import ServerError
from onward.store.postgres.pool import Rows, Wire
from onward.store.postgres.schema import check_known
from onward.store.postgres.statements import BEGIN, Call, call, texts
from onward.store.rows import UNLIMITED

DAMAGED = frozenset({"XX001", "XX002"})
TAIL_AT_ONCE = 100  # events that come with a run's row; most runs that are claimed have fewer


async def read_records(
    wire: Wire, run_id: str, after: int, *, upto: int = UNLIMITED, limit: int = UNLIMITED
) -> Sequence[StoredEvent]:
    """A run's log; below its fork point that is its parent's."""
    own, forks = await _events(wire, run_id, after, upto, limit)
    parent, parent_seq = fork_of(forks)
    shared: Sequence[StoredEvent] = ()
    if parent and after < parent_seq:
        shared = await read_records(wire, parent, after, upto=min(upto, parent_seq), limit=limit)
    return [*shared, *await with_values(wire, own[: limit - len(shared)])]


async def read_bodies(wire: Wire, run_id: str, kind: str, upto: int = UNLIMITED) -> Sequence[str]:
    """The events of one kind; below a run's fork point they are its parent's."""
    own, forks = await wire.run(
        call("event_bodies", run_id=run_id, upto=upto, kind=kind), call("run_fork", id=run_id)
    )
    parent, parent_seq = fork_of(forks)
    shared = await read_bodies(wire, parent, kind, min(upto, parent_seq)) if parent else ()
    return [*shared, *(body for (body,) in own)]


async def _events(wire: Wire, run_id: str, after: int, upto: int, limit: int) -> Sequence[Rows]:
    """The run's own events, and where it was forked."""
    calls = events_call(run_id, after, upto, limit), call("run_fork", id=run_id)
    try:
        return await wire.run(*calls)
    except ServerError as error:
        if error.sqlstate not in DAMAGED or limit == 1:
            raise
        await wire.roll_back()
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


async def name_damaged_event(
    wire: Wire, run_id: str, error: ServerError, known: int | None, beside: Sequence[Call]
) -> None:
    """Raise HistoryCorrupt if `error` is of an event after `known` or the snapshot, and not of what was asked
    `beside` the events."""
    if error.sqlstate not in DAMAGED:
        return
    await wire.roll_back()
    *cached, _ = await wire.run(*beside)
    kept = rows.snapshot_of(cached[0][0]).seq if cached and cached[0] else 0
    await read_records(wire, run_id, known or kept)


def events_call(run_id: str, after: int, upto: int = UNLIMITED, limit: int = UNLIMITED) -> Call:
    """Asks for events of a run's own log."""
    return call("event_read", run_id=run_id, after=after, upto=upto, limit=limit)


def tail_call(run_id: str, known: int | None, fold_version: int) -> Call:
    """Asks for the first events of a run's own log after event `known`, or after its snapshot."""
    if known is not None:
        return events_call(run_id, known, limit=TAIL_AT_ONCE)
    return call("event_tail", run_id=run_id, fold_version=fold_version, limit=TAIL_AT_ONCE)


async def read_tail(wire: Wire, run_id: str, after: int, upto: int, own: Rows) -> Sequence[StoredEvent]:
    """The events `after` + 1 to `upto`, from `own` if they are all there.

    They are not if there are many, if some are a parent's, or if more was appended meanwhile.
    """
    if len(own) == upto - after and (not own or own[0][1] == after + 1):
        return await with_values(wire, own)
    return await read_records(wire, run_id, after, upto=upto)


def fork_of(found: Rows) -> tuple[str | None, int]:
    """Which run this one was forked from, and where."""
    return (found[0][0], found[0][1] or 0) if found else (None, 0)


async def with_values(wire: Wire, own: Rows) -> Sequence[StoredEvent]:
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


async def inherited_snapshot(wire: Wire, row: RunRow, fold_version: int) -> Snapshot | None:
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


async def find_due(wire: Wire, wanted: TakeFilter, now_us: int | None) -> str | None:
    """Begin a transaction and lock the run whose turn it is, if its pipeline may have one more held.

    Whoever takes a run of a pipeline with a ceiling waits here for others who do, and then counts.
    """
    full: list[str] = []
    begin = [BEGIN]
    while True:
        left = {"unserved": wanted.unserved, "skipped": wanted.skipped, "full": full}
        lists = {name: texts(names) for name, names in left.items()}
        # A newer version may have migrated the database since it was opened. Asked after the run is locked,
        # since from then on no migration that must not meet a holder can begin.
        *_, found, ((newest,),) = await wire.run(
            *begin, call("run_due", now_us=now_us, **lists), call("migration_newest")
        )
        check_known(newest)
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
        begin.clear()

"""Why a write was refused: looked up after the server did not take it."""

from __future__ import annotations

from collections.abc import Sequence

from onward.errors import LeaseLost, RunNotFound, StaleHistory
from onward.store import rows
from onward.store.member import Member
from onward.store.port.stored import Write
from onward.store.postgres.link.failure import AGAIN, KEY_IN_USE, ServerError
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.reading import read_records
from onward.store.postgres.statements import call
from onward.store.postgres.writing.calls import CONTENT_MISSING
from onward.store.refusals import content_missing, key_occupied, run_exists


def is_fork(member: Member) -> bool:
    """Whether this creates a run that shares the log of another."""
    return member.held is None and member.write.row is not None and member.write.row.parent is not None


async def is_orphan(wire: Wire, write: Write) -> bool:
    """A fork stands on an event that its parent really has; once there, it is there for ever."""
    assert write.row is not None
    below = await read_records(wire, write.row.parent or "", write.after.seq - 1, limit=1)
    return not below or (below[0].seq, below[0].hash) != write.after


async def refusal_of(wire: Wire, write: Write, error: ServerError) -> Exception | None:
    """What an error of the server means for the only write that it is about; None if it is no refusal."""
    if error.sqlstate == CONTENT_MISSING:
        return content_missing(write.run_id)
    return await _occupied(wire, write) if error.constraint == KEY_IN_USE else None


async def _occupied(wire: Wire, write: Write) -> Exception:
    """An exclusive key belongs to one held run; naming the holder beats a broken index."""
    assert write.row is not None
    assert write.row.exclusive_key is not None
    await wire.roll_back()
    (found,) = await wire.run(call("run_holding_key", key=write.row.exclusive_key, id=write.run_id))
    if not found:
        raise ServerError(AGAIN, "the key was in use a moment ago")
    return key_occupied(write.row.exclusive_key, *found[0][:2])


async def _is_there(wire: Wire, member: Member) -> bool:
    """Whether this creation is in the log, by the name it was given or by its last hash."""
    write = member.write
    if member.append_id is None:
        (written,) = await wire.run(call("event_hash", run_id=write.run_id, seq=write.head.seq))
        return bool(written) and bool(written[0][0] == write.head.hash)
    (noted,) = await wire.run(call("append_find", run_id=write.run_id, append_id=member.append_id))
    return bool(noted)


async def why_refused(wire: Wire, member: Member, orphans: Sequence[str]) -> Exception | None:
    """None when this very write is already there: its reply was lost, not the write."""
    write = member.write
    if member.held is None:
        if await _is_there(wire, member):
            return None
        if write.run_id in orphans and write.row is not None:
            return RunNotFound(write.row.parent or "")
        return run_exists(write.run_id)
    written, found = await wire.run(
        call("event_hash", run_id=write.run_id, seq=write.head.seq),
        call("run_get", id=write.run_id, now_us=None),
    )
    if written and written[0][0] == write.head.hash:
        return None
    if not found:
        return RunNotFound(write.run_id)
    row = rows.run_row(found[0])
    if (row.owner, row.token) != member.held:
        return LeaseLost(write.run_id, member.held[1])
    return StaleHistory(write.run_id, write.after.seq)

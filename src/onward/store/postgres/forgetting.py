"""Forgetting runs: a batch is one trip, and so one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from onward.store import rows
from onward.store.postgres.link.binary import texts
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import Call, call
from onward.store.retention import DELETED_AT_ONCE, NOTHING, Expiry, Kin, Swept, batched, keys_below, new_mark


async def expired(wire: Wire, expiry: Expiry) -> Sequence[Kin]:
    """The runs that are old enough, oldest first."""
    statuses = texts([status.value for status in expiry.statuses])
    return await _kin(
        wire, call("run_expired", statuses=statuses, before_us=expiry.before_us, keep=expiry.keep)
    )


async def attached(wire: Wire) -> Sequence[Kin]:
    """All that are not final, and all forks."""
    return await _kin(wire, call("run_attached"))


async def _kin(wire: Wire, asked: Call) -> Sequence[Kin]:
    (found,) = await wire.run(asked)
    return [kin for columns in found if (kin := rows.kin_of(columns)) is not None]


async def delete(wire: Wire, runs: Sequence[Kin]) -> Sequence[str]:
    """Delete those that have not changed; the ids that are gone now.

    What was asked over a connection that broke is asked again, so the answer is not who was deleted but who
    is left.
    """
    calls = [part for kin in runs for part in _parts(kin)]
    *_, left = await wire.run(*calls, call("run_remaining", ids=texts([kin.id for kin in runs])))
    remaining = {columns[0] for columns in left}
    return [kin.id for kin in runs if kin.id not in remaining]


def _parts(kin: Kin) -> Sequence[Call]:
    others = ("event_delete", "append_delete", "snapshot_delete")
    first, behind = keys_below(kin.id)
    return (
        call("run_delete", id=kin.id, head=kin.head),
        *(call(name, id=kin.id) for name in others),
        call("effect_delete", id=kin.id, first=first, behind=behind),
    )


async def sweep_blobs(wire: Wire, before_us: int, limit: int) -> Swept:
    """Mark blobs that nothing refers to, look again, and delete those that still have the mark."""
    mark, swept = new_mark(), NOTHING
    names = await unused_blobs(wire, before_us, limit)
    for batch in batched(names, DELETED_AT_ONCE):
        await mark_blobs(wire, batch, before_us=before_us, mark=mark)
    for batch in batched(await unused_blobs(wire, 0, limit) if names else (), DELETED_AT_ONCE):
        swept = swept.plus(await delete_blobs(wire, batch, mark=mark))
    return swept


async def unused_blobs(wire: Wire, before_us: int, limit: int) -> Sequence[str]:
    """Blobs that nothing refers to and that were not touched since."""
    (unused,) = await wire.run(call("blob_unused", before_us=before_us, limit=limit))
    return sorted(columns[0] for columns in unused)


async def mark_blobs(wire: Wire, names: Sequence[str], *, before_us: int, mark: int) -> None:
    """Mark those of these blobs that are still untouched: whoever uses one from now on takes the mark off."""
    await wire.run(call("blob_mark", hashes=texts(names), before_us=before_us, mark=mark))


async def delete_blobs(wire: Wire, names: Sequence[str], *, mark: int) -> Swept:
    """Delete those of these blobs that still have the mark."""
    answers = await wire.run(*(call("blob_delete", hash=name, mark=mark) for name in names))
    sizes = [columns[0] for found in answers for columns in found]
    return Swept(len(sizes), sum(sizes))

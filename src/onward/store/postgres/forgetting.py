"""Forgetting runs: a batch is one trip, and so one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from onward.store import rows
from onward.store.postgres.binary import texts
from onward.store.postgres.statements import Call, call
from onward.store.postgres.wire import Wire
from onward.store.retention import DELETED_AT_ONCE, NOTHING, Expiry, Kin, Swept, batched, keys_below


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
    """Find blobs that nobody refers to, and delete a few at a time those that stay untouched."""
    (unused,) = await wire.run(call("blob_unused", before_us=before_us, limit=limit))
    swept = NOTHING
    for batch in batched(sorted(columns[0] for columns in unused), DELETED_AT_ONCE):
        answers = await wire.run(*(call("blob_delete", hash=name, before_us=before_us) for name in batch))
        sizes = [columns[0] for found in answers for columns in found]
        swept = swept.plus(Swept(len(sizes), sum(sizes)))
    return swept

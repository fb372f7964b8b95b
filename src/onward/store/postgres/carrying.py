"""Taking in runs that were written elsewhere: one transaction for each."""

from __future__ import annotations

from onward.store import rows
from onward.store.carrying import Arrival
from onward.store.member import Member
from onward.store.port import content_named
from onward.store.postgres.link.failure import ServerError
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import BEGIN, COMMIT, call
from onward.store.postgres.writing import CONTENT_MISSING, Writer, event_arrays, relying_on
from onward.store.refusals import content_missing


async def receive(wire: Wire, writer: Writer, arrival: Arrival) -> None:
    """Store the run, unless this very log is there."""
    write = arrival.write
    _, found = await wire.run(BEGIN, call("event_hash", run_id=write.run_id, seq=write.head.seq))
    if found and found[0][0] == write.head.hash:
        return
    (refusal,) = await writer.write(wire, [Member(write, None, arrival.append_id)])
    if refusal is not None:
        raise refusal
    for page in arrival.rest():
        relied_on = relying_on(content_named(page) - write.blobs.keys(), write.at_us)
        try:
            await wire.run(*relied_on, call("event_receive", **event_arrays(page)))
        except ServerError as error:
            if error.sqlstate == CONTENT_MISSING:
                raise content_missing(write.run_id) from None
            raise
    effects = (call("effect_receive", **rows.effect_columns(effect)) for effect in arrival.effects)
    await wire.run(*effects, COMMIT)

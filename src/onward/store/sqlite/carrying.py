"""Taking in runs that were written elsewhere, inside the caller's transaction."""

from __future__ import annotations

import apsw

from onward.store import rows
from onward.store.carrying import Arrival
from onward.store.member import Member
from onward.store.port import content_named
from onward.store.sqlite.statements import QUERIES
from onward.store.sqlite.writing import Writer, check_content, event_columns


def receive(db: apsw.Connection, writer: Writer, arrival: Arrival) -> None:
    """Store the run, unless this very log is there."""
    write = arrival.write
    if db.execute(QUERIES["event_hash"], (write.run_id, write.head.seq)).get == write.head.hash:
        return
    (refusal,) = writer.write(db, [Member(write, None, arrival.append_id)])
    if refusal is not None:
        raise refusal
    for page in arrival.rest():
        relied_on = content_named(page) - write.blobs.keys()
        missing = check_content(db, write.run_id, relied_on, write.at_us)
        if missing is not None:
            raise missing
        db.executemany(QUERIES["event_receive"], event_columns(page))
    for effect in arrival.effects:
        db.execute(QUERIES["effect_receive"], rows.effect_columns(effect))

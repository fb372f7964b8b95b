"""Files that somebody made by hand, with hashes that fit: refused before anything is written."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from blake3 import blake3
from msgspec.structs import replace

from onward.carry.format import BlobLine, CarriedRun, EventLine, Header, Spool, write_line
from onward.carry.importer import CheckedExport
from onward.errors import Refused
from onward.model.call import CallStarted
from onward.model.events import Event, RunClaimed, StepStarted
from onward.store.codec import chain_hash, content_hash
from onward.store.port.log import ORIGIN
from tests.conformance.drafts import creation

DEEP = "[" * 100_000 + "]" * 100_000
SOURCE = b"digraph {}"
EFFECT = {"line": "effect", "key": "run/x", "token": "t", "owner": "o", "begun_at_us": 1}
ABOVE = 2**63


def line(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def forged(*effects: dict[str, Any], **changes: Any) -> bytes:
    """An export of a run whose only event is what somebody made of it."""
    write, _ = creation("run", pipeline_hash=content_hash(SOURCE))
    record = replace(write.records[0], **changes)
    record = replace(record, hash=chain_hash(record, ORIGIN.hash))
    run = CarriedRun(id="run", head=1, hash=record.hash.hex())
    header = Header(format="onward-export", version=1, onward="1", runs=(run,))
    blob = BlobLine(hash=content_hash(SOURCE), content=SOURCE)
    body = write_line(header) + write_line(blob) + write_line(EventLine.of(record))
    body += b"".join(line(**effect) for effect in effects)
    return body + line(line="end", lines=3 + len(effects), hash=blake3(body).hexdigest())


def created(**changes: Any) -> str:
    """The body of the run's only event, with other numbers in it."""
    write, _ = creation("run", pipeline_hash=content_hash(SOURCE))
    return json.dumps({**json.loads(write.records[0].body), **changes})


def looked_at(content: bytes) -> CheckedExport:
    spool = Spool(io.BytesIO(content), "the file")
    try:
        return CheckedExport(spool)
    finally:
        spool.close()


def test_a_file_made_by_hand_can_be_sound() -> None:
    assert [row.id for row in looked_at(forged(EFFECT)).rows] == ["run"]


@pytest.mark.parametrize(
    "content",
    [
        DEEP.encode() + b"\n",
        b'{"line":"header","format":' + DEEP.encode() + b"}\n",
        forged() + DEEP.encode() + b"\n",
        forged(body=DEEP),
        forged(body='{"pipeline_hash":' + DEEP + "}"),
        forged(at_us=ABOVE),
        forged(at_us=-1),
        forged(at_us=ABOVE - 1),
        forged(token=ABOVE),
        forged(body=created(priority=ABOVE)),
        forged(body=created(max_running=10**30)),
        forged({**EFFECT, "begun_at_us": ABOVE}),
        forged({**EFFECT, "finished_at_us": ABOVE}),
        forged({**EFFECT, "key": "run/\0"}),
        forged({**EFFECT, "owner": "\0"}),
        forged({**EFFECT, "token": "\0"}),
    ],
    ids=range(16),
)
def test_what_no_database_could_hold_is_refused_before_anything_is_written(content: bytes) -> None:
    with pytest.raises(Refused, match="nothing was imported"):
        looked_at(content)


def forged_log(*events: Event) -> bytes:
    """An export of a run that was created, and then had these events."""
    write, draft = creation("run", pipeline_hash=content_hash(SOURCE))
    records = [*write.records]
    for event in events:
        after, draft = draft.then(event)
        records += after.records
    run = CarriedRun(id="run", head=len(records), hash=records[-1].hash.hex())
    header = Header(format="onward-export", version=1, onward="1", runs=(run,))
    blob = BlobLine(hash=content_hash(SOURCE), content=SOURCE)
    body = write_line(header) + write_line(blob) + b"".join(write_line(EventLine.of(one)) for one in records)
    return body + line(line="end", lines=2 + len(records), hash=blake3(body).hexdigest())


CLAIMED = RunClaimed(token=1, worker="1@elsewhere/1")


@pytest.mark.parametrize(
    "events",
    [
        [RunClaimed(token=ABOVE - 1, worker="1@elsewhere/1")],
        [CLAIMED, StepStarted(step="start#1", node="start", attempt=ABOVE - 1)],
        [
            CLAIMED,
            StepStarted(step="start#1", node="start", attempt=1),
            CallStarted(step="start#1", attempt=1, call="k", number=ABOVE - 1),
        ],
    ],
    ids=["token", "attempt", "try"],
)
def test_a_count_that_has_no_next_number_is_refused(events: list[Event]) -> None:
    """Who continues such a run would have to count on."""
    with pytest.raises(Refused, match="nothing was imported"):
        looked_at(forged_log(*events))
    assert looked_at(forged_log(CLAIMED)).rows

"""Records that cannot be trusted: each is named, with the reason, and none is guessed at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from onward.errors import HistoryCorrupt
from onward.model.events import Event, RunWaiting
from onward.model.gate import Choice, GateDecided, GateOpened
from onward.store.codec import check_chain, content_hash, seal, unseal
from onward.store.port.log import ORIGIN, Position, StoredEvent
from tests.conformance.drafts import Draft, creation, step

LARGE = "large " * 2_000
YES = Choice(key="Y", label="Yes", to="b")


def log_of(steps: int) -> tuple[Draft, list[StoredEvent]]:
    """A run and its whole log."""
    write, run = creation("run", owner="worker")
    records = list(write.records)
    for _ in range(steps):
        write, run = run.then(*step(run, text=LARGE))
        records += write.records
    return run, records


RUN, LOG = log_of(3)


def test_a_log_that_is_whole_leads_to_its_end() -> None:
    assert check_chain(ORIGIN, LOG) == RUN.position
    assert check_chain(Position(LOG[2].seq, LOG[2].hash), LOG[3:]) == RUN.position
    assert check_chain(ORIGIN, []) == ORIGIN


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "another"},
        {"kind": "StepStarted"},
        {"v": 2},
        {"at_us": 1},
        {"token": 2},
        {"body": "{}"},
        {"hash": bytes(32)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_edited_event_is_found(change: dict[str, Any]) -> None:
    edited = [*LOG[:3], replace(LOG[3], **change), *LOG[4:]]
    with pytest.raises(HistoryCorrupt) as found:
        check_chain(ORIGIN, edited)
    assert found.value.seq == 4
    assert "does not match" in found.value.why


@given(at=st.integers(0, len(LOG) - 2))
def test_a_lost_event_is_found(at: int) -> None:
    with pytest.raises(HistoryCorrupt, match="the event is missing") as found:
        check_chain(ORIGIN, LOG[:at] + LOG[at + 1 :])
    assert found.value.seq == at + 1


@given(at=st.integers(0, len(LOG) - 2))
def test_events_in_another_order_are_found(at: int) -> None:
    swapped = [*LOG[:at], replace(LOG[at + 1], seq=at + 1), replace(LOG[at], seq=at + 2), *LOG[at + 2 :]]
    with pytest.raises(HistoryCorrupt) as found:
        check_chain(ORIGIN, swapped)
    assert found.value.seq == at + 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "RunDreamed"}, "unknown kind 'RunDreamed'"),
        ({"kind": ""}, "unknown kind ''"),
        ({"v": 99}, "has version 99; upgrade Onward"),
        ({"body": ""}, "cannot be decoded"),
        ({"body": "not json"}, "cannot be decoded"),
        ({"body": "[]"}, "cannot be decoded"),
        ({"body": "{}"}, "cannot be decoded"),
        ({"body": '{"pipeline":"p","pipeline_hash":"h","start_node":"s","surprise":1}'}, "cannot be decoded"),
        ({"body": '{"pipeline":1,"pipeline_hash":"h","start_node":"s"}'}, "cannot be decoded"),
        ({"body": '{"context":{"deep":' + "[" * 100_000 + "]" * 100_000 + "}}"}, "cannot be decoded"),
    ],
)
def test_an_event_that_this_program_cannot_read_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(HistoryCorrupt) as found:
        unseal(replace(LOG[0], **change))
    assert (found.value.run_id, found.value.seq) == ("run", 1)
    assert why in found.value.why


@pytest.mark.parametrize("values", [{}, {"wrong name": b'"x"'}, None], ids=["missing", "another", "damaged"])
def test_an_event_whose_large_value_is_not_there_is_refused(values: dict[str, bytes] | None) -> None:
    record = LOG[3]
    (name,) = record.refs
    record = replace(record, values={name: b'"damaged"'} if values is None else values)
    with pytest.raises(
        HistoryCorrupt, match=r"the value of 'text' \(blob [0-9a-f]{64}\) is missing or damaged"
    ):
        unseal(record)


def test_an_answer_that_is_not_there_is_refused() -> None:
    begun, ended = step(RUN)
    sealed = seal("run", RUN.position, [begun, replace(ended, response=LARGE)], token=1, at_us=5)
    (_, record), blobs = sealed.records, sealed.blobs
    (name,) = record.refs
    assert blobs == {name: LARGE.encode()}
    assert unseal(replace(record, values=blobs)) == replace(ended, response=LARGE)
    with pytest.raises(HistoryCorrupt, match=r"the response \(blob [0-9a-f]{64}\) is missing or damaged"):
        unseal(record)


def test_sealing_again_gives_the_same_records() -> None:
    events = step(RUN, text=LARGE)
    first, second = (seal("run", RUN.position, events, token=1, at_us=5) for _ in range(2))
    assert first == second
    assert [content_hash(content) for content in first.blobs.values()] == list(first.blobs)
    assert check_chain(RUN.position, first.records) == first.head
    size = sum(len(record.body) for record in first.records)
    assert (first.head.seq, first.size) == (RUN.position.seq + 2, size)


@pytest.mark.parametrize(
    ("kind", "body", "event"),
    [
        (
            "GateOpened",
            '{"gate":"g#1","node":"g","text":"?","choices":[{"key":"Y","label":"Yes","to":"b"}]}',
            GateOpened(gate="g#1", node="g", text="?", choices=(YES,)),
        ),
        (
            "GateDecided",
            '{"gate":"g#1","choice":{"key":"Y","label":"Yes","to":"b"},"by":"pat"}',
            GateDecided(gate="g#1", choice=YES, by="pat"),
        ),
        ("RunWaiting", "{}", RunWaiting()),
    ],
)
def test_an_event_of_an_older_version_is_read_as_it_was_meant(kind: str, body: str, event: Event) -> None:
    """Fields that came later have the meaning that their absence had."""
    assert unseal(replace(LOG[0], kind=kind, v=1, body=body)) == event

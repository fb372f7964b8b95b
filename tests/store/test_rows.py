"""Columns that are not what they should be: a flipped bit can make anything of them."""

from __future__ import annotations

from typing import Any

import pytest
import zstandard
from msgspec.structs import astuple

from onward.errors import HistoryCorrupt, StoreCorrupt
from onward.store import rows
from onward.store.codec import content_hash
from onward.store.port.log import Snapshot, StoredEvent
from tests.conformance.drafts import creation

WRITE, RUN = creation("run")
RECORD = WRITE.records[0]
COLUMNS = (*astuple(RECORD)[:8], "")
VALUES: tuple[Any, ...] = (None, 1, -1.5, "text", b"bytes", 2**63)
WRONG = [
    pytest.param(index, value, id=f"{StoredEvent.__struct_fields__[index]}={value!r}")
    for index in range(2, 9)
    for value in VALUES
    if type(value) is not type(COLUMNS[index]) and (index, value) != (8, None)
]
ROW_COLUMNS = [name for name in rows.ROW_FIELDS if name != "id"]


def test_a_record_comes_back_from_its_columns() -> None:
    assert rows.record_of(COLUMNS, {}) == RECORD
    assert rows.record_of((*COLUMNS[:8], None), {}) == RECORD


@pytest.mark.parametrize(("index", "wrong"), WRONG)
def test_a_column_of_the_wrong_type_is_named_by_its_event(index: int, wrong: Any) -> None:
    damaged = (*COLUMNS[:index], wrong, *COLUMNS[index + 1 :])
    with pytest.raises(HistoryCorrupt, match="event 1 of run run is damaged"):
        rows.record_of(damaged, {})


def test_a_row_comes_back_from_its_columns() -> None:
    parameters = rows.row_parameters(WRITE)
    columns = (*(parameters[name] for name in rows.ROW_FIELDS), WRITE.head.hash)
    assert rows.run_row(columns) == WRITE.row
    assert rows.row_position(columns) == WRITE.head


@pytest.mark.parametrize("name", ROW_COLUMNS)
def test_a_row_with_a_column_of_the_wrong_type_is_named(name: str) -> None:
    damaged = {**rows.row_parameters(WRITE), name: b"\xff"}
    with pytest.raises(StoreCorrupt, match="the row of run 'run' is damaged"):
        rows.run_row([damaged[field] for field in rows.ROW_FIELDS])


@pytest.mark.parametrize(("head", "hash_"), [(None, b""), ("1", b""), (1, None), (1, "00"), (1, 5)])
def test_a_row_that_does_not_say_where_its_log_ends_is_named(head: Any, hash_: Any) -> None:
    with pytest.raises(StoreCorrupt, match="the row of run 'run' is damaged"):
        rows.position_of("run", head, hash_)


def test_a_snapshot_with_a_column_of_the_wrong_type_is_as_good_as_none() -> None:
    assert rows.snapshot_of((3, b"hash", 1, b"body")) == Snapshot(3, b"hash", 1, b"body")
    assert rows.snapshot_of((3, "hash", 1, None)) == Snapshot(3, b"", 1, b"")


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 10_000, bytes(range(256))])
def test_a_blob_comes_back_from_its_columns(content: bytes) -> None:
    encoding, stored = rows.pack(content)
    assert len(stored) <= len(content)
    assert rows.unpack(content_hash(content), encoding, stored) == content


def test_a_blob_that_is_not_what_its_name_says_is_none() -> None:
    content = b"content " * 1_000
    name, (encoding, stored) = content_hash(content), rows.pack(content)
    claims_too_much = zstandard.ZstdCompressor().compress(b"x" * 300)[:5] + b"\xff" * 8
    for other in (b"", b"x", stored[:-1], stored[1:], rows.pack(b"other " * 1_000)[1], claims_too_much):
        assert rows.unpack(name, encoding, other) is None
    assert rows.unpack(name, "plain", stored) is None
    for damaged in (None, 1, "text"):
        assert rows.unpack(name, encoding, damaged) is None

"""Rows to values and back, for every SQL database alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import zstandard

from onward.errors import HistoryCorrupt, StoreCorrupt
from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.store.codec import content_hash
from onward.store.port import Holder, Position, Record, Snapshot, Write

ROW_FIELDS = tuple(field.name for field in msgspec.structs.fields(RunRow))


def run_row(columns: Sequence[Any]) -> RunRow:
    """A run's row from its columns, which are in the order of its fields."""
    values = dict(zip(ROW_FIELDS, columns, strict=False))
    values["recoverable"] = bool(values["recoverable"])
    try:
        return msgspec.convert(values, RunRow)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the row of run {columns[0]!r} is damaged: {error}.") from None


def row_position(columns: Sequence[Any]) -> Position:
    """The end of the log, from the columns behind the row's fields."""
    return position_of(columns[0], columns[len(ROW_FIELDS) - 1], columns[len(ROW_FIELDS)])


def position_of(run_id: str, head: Any, hash_: Any) -> Position:
    """The end of a log from its two columns."""
    if type(head) is not int or not isinstance(hash_, bytes):
        raise StoreCorrupt(f"the row of run {run_id!r} is damaged: it does not say where its log ends.")
    return Position(head, hash_)


def status_of(status: Any, whose: str) -> RunStatus:
    """A status column."""
    try:
        return RunStatus(status)
    except ValueError:
        raise StoreCorrupt(f"the row of {whose} is damaged: {status!r} is no status.") from None


def holder_of(
    owner: str | None, token: int, is_expired: bool, is_alive: Callable[[str, bool], bool]
) -> Holder | None:
    """Who holds a run, judged by the adapter's own way to tell."""
    return None if owner is None else Holder(owner, token, is_alive(owner, is_expired))


def row_parameters(write: Write) -> dict[str, Any]:
    """The parameters of an insert or full update of a run."""
    assert write.row is not None
    parameters = {name: getattr(write.row, name) for name in ROW_FIELDS}
    parameters["status"] = write.row.status.value
    parameters["hash"] = write.head.hash
    parameters["parent_hash"] = write.after.hash if write.row.parent else None
    return parameters


def split_refs(refs: str | None) -> tuple[str, ...]:
    """The blob hashes of a `refs` column."""
    return tuple(refs.split()) if refs else ()


def record_of(columns: Sequence[Any], values: Mapping[str, bytes]) -> Record:
    """An event row as a record, with the large values it names."""
    run_id, seq, kind, v, at_us, token, body, hash_, refs = columns
    # What a flipped bit makes of a column need not be of its type.
    if not (type(v) is type(at_us) is type(token) is int and type(kind) is type(body) is str):
        raise HistoryCorrupt(run_id, seq, "a column has the wrong type")
    names = split_refs(refs)
    found = {name: values[name] for name in names if name in values}
    return Record(run_id, seq, kind, v, at_us, token, body, hash_, names, found)


def snapshot_of(columns: Sequence[Any]) -> Snapshot:
    """A snapshot row."""
    return Snapshot(*columns)


def pack(content: bytes) -> tuple[str, bytes]:
    """A blob's encoding and stored bytes: compressed unless that makes it larger."""
    packed = zstandard.ZstdCompressor(level=3).compress(content)
    return ("zstd", packed) if len(packed) < len(content) else ("plain", content)


def unpack(name: str, encoding: str, stored: bytes) -> bytes | None:
    """A blob's content, or None when it is not what its name says: whoever needed it names the place."""
    try:
        content = zstandard.ZstdDecompressor().decompress(stored) if encoding == "zstd" else stored
    except (zstandard.ZstdError, MemoryError):  # a damaged frame may claim any size
        return None
    return content if content_hash(content) == name else None

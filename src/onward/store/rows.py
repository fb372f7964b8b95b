"""Rows to values and back, for every SQL database alike."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import zstandard

from onward.errors import HistoryCorrupt, StoreCorrupt
from onward.model.row import GateRow, RunRow
from onward.model.run import RunStatus
from onward.model.worker import Offer, RegisteredWorker
from onward.store.codec import content_hash
from onward.store.port.effects import Effect
from onward.store.port.leases import Holder
from onward.store.port.retention import Kin
from onward.store.port.runs import Listed
from onward.store.port.stored import Position, Snapshot, StoredEvent, Write, read_with

log = logging.getLogger("onward.store")
T = TypeVar("T")
R = TypeVar("R")
UNLIMITED = 2**62
IsAlive = Callable[[str, bool], bool]
"""Whether an owner is alive; it is told whether its lease is over."""
ROW_FIELDS = tuple(field.name for field in msgspec.structs.fields(RunRow))
_FLAGS = ("recoverable", "is_dismissed")
"""Columns that are 0 or 1."""
_GATE_FIELDS = GateRow.__struct_fields__


def run_row(columns: Sequence[Any]) -> RunRow:
    """A run's row from its columns, which are in the order of its fields."""
    values = dict(zip(ROW_FIELDS, columns, strict=False))
    values |= {name: bool(values[name]) for name in _FLAGS if values[name] in (0, 1)}
    try:
        return msgspec.convert(values, RunRow)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the row of run {columns[0]!r} is damaged: {error}.") from None


def sound(found: Iterable[T], read: Callable[[T], R]) -> list[R]:
    """What can be read of `found`. The rest is told and left out: a damaged row must not hide the others."""
    made: list[R] = []
    for columns in found:
        try:
            made.append(read(columns))
        except StoreCorrupt as error:
            log.error("%s", error)
    return made


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
        raise StoreCorrupt(f"the row of {whose} is damaged: {status!r} is not a status.") from None


def counted(columns: Sequence[Any]) -> tuple[RunStatus, int]:
    """How many runs have a status."""
    status, number = columns
    return status_of(status, f"{number} runs"), number


def worker_values(offer: Offer) -> dict[str, Any]:
    """The columns of a worker that say what it serves."""
    return {
        "handlers": json.dumps(offer.handlers),
        "lacks": json.dumps(offer.lacks),
        "concurrency": offer.concurrency,
    }


def worker_of(columns: Sequence[Any], is_alive: IsAlive) -> RegisteredWorker:
    """A worker from its columns."""
    owner, handlers, lacks, concurrency, started_at_us, _, is_expired = columns
    try:
        offer = Offer(tuple(json.loads(handlers)), tuple(json.loads(lacks)), concurrency)
    except (ValueError, TypeError):
        raise StoreCorrupt(
            f"the row of worker {owner!r} is damaged: it does not say what it serves."
        ) from None
    return RegisteredWorker(owner, offer, started_at_us, is_alive(owner, bool(is_expired)))


def dead_workers(found: Iterable[Sequence[Any]], is_alive: IsAlive) -> list[tuple[str, int]]:
    """The dead among the workers, each with the end of its lease as it was seen."""
    return [(row[0], row[5]) for row in found if not is_alive(row[0], bool(row[6]))]


def holder_of(owner: str | None, token: int, is_expired: bool, is_alive: IsAlive) -> Holder | None:
    """Who holds a run, judged by the adapter's own way to tell."""
    return None if owner is None else Holder(owner, token, is_alive(owner, is_expired))


def listed_of(columns: Sequence[Any], is_alive: IsAlive) -> Listed:
    """A row with its holder; the last column says whether the lease is over."""
    row = run_row(columns)
    return Listed(row, holder_of(row.owner, row.token, bool(columns[-1]), is_alive))


def effect_of(columns: Sequence[Any], is_alive: IsAlive) -> Effect:
    """An effect from its columns. Its time must not be over either: its process may be at something else."""
    key, token, owner, begun_at_us, finished_at_us, result, is_expired = columns
    at_it = not is_expired and is_alive(owner, False)
    return Effect(key, token, owner, at_it, begun_at_us, finished_at_us, result)


def effect_columns(effect: Effect) -> dict[str, str | int | bytes | None]:
    """The columns of an effect, by name."""
    return {
        "key": effect.key,
        "state": "begun" if effect.result is None else "finished",
        "token": effect.token,
        "owner": effect.owner,
        "result": effect.result,
        "begun_at_us": effect.begun_at_us,
        "finished_at_us": effect.finished_at_us,
    }


def keys_below(under: str) -> tuple[str, str]:
    """The keys that begin with `under` and a slash: from the first of these on, and before the second.

    No run's id has a `/` in it, so below it are the effects of that run alone.
    """
    return f"{under}/", f"{under}{chr(ord('/') + 1)}"


def row_parameters(write: Write) -> dict[str, Any]:
    """The parameters of an insert or full update of a run."""
    assert write.row is not None
    parameters = msgspec.structs.asdict(write.row)
    parameters["status"] = write.row.status.value
    parameters["hash"] = write.head.hash
    parameters["parent_hash"] = write.after.hash if write.row.parent else None
    return parameters


def gate_parameters(row: GateRow) -> dict[str, Any]:
    """The columns of a gate, by name."""
    choices = msgspec.json.encode(row.choices).decode()
    return {**msgspec.structs.asdict(row), "gate_hash": content_hash(row.gate.encode()), "choices": choices}


def gate_row(columns: Sequence[Any]) -> GateRow:
    """A gate from its columns, which are in the order of its fields."""
    values = dict(zip(_GATE_FIELDS, columns, strict=True))
    try:
        return msgspec.convert({**values, "choices": msgspec.json.decode(values["choices"])}, GateRow)
    except (msgspec.MsgspecError, TypeError) as error:
        run_id, gate, *_ = columns
        raise StoreCorrupt(f"the row of gate {gate!r} of run {run_id!r} is damaged: {error}.") from None


def split_refs(refs: Any) -> tuple[str, ...]:
    """The blob hashes of a `refs` column, as they are in a record."""
    return tuple(refs.split()) if refs and isinstance(refs, str) else ()


def values_of(refs: Any) -> Sequence[str]:
    """The hashes in a `refs` column of what is read with the event."""
    return read_with(split_refs(refs))


def record_of(columns: Sequence[Any], values: Mapping[str, bytes]) -> StoredEvent:
    """An event row as a record, with the large values it names."""
    run_id, seq, kind, v, at_us, token, body, hash_, refs = columns
    # What a flipped bit makes of a column need not be of its type.
    numbers, texts = type(v) is type(at_us) is type(token) is int, type(kind) is type(body) is str
    if not (numbers and texts and type(hash_) is bytes and (refs is None or type(refs) is str)):
        raise HistoryCorrupt(run_id, seq, "a column has the wrong type")
    names = split_refs(refs)
    found = {name: values[name] for name in names if name in values}
    return StoredEvent(run_id, seq, kind, v, at_us, token, body, hash_, names, found)


def snapshot_of(columns: Sequence[Any]) -> Snapshot:
    """A snapshot row; what is not bytes in it was damaged, and is read as nothing."""
    seq, hash_, fold_version, body = columns
    return Snapshot(seq, _bytes(hash_), fold_version, _bytes(body))


def _bytes(column: Any) -> bytes:
    return column if isinstance(column, bytes) else b""


def pack(content: bytes) -> tuple[str, bytes]:
    """A blob's encoding and stored bytes: compressed unless that makes it larger."""
    packed = zstandard.ZstdCompressor(level=3).compress(content)
    return ("zstd", packed) if len(packed) < len(content) else ("plain", content)


def unpack(name: str, encoding: str, stored: Any) -> bytes | None:
    """A blob's content, or None when it is not what its name says: whoever needed it names the place."""
    content = _bytes(stored)
    try:
        content = zstandard.ZstdDecompressor().decompress(content) if encoding == "zstd" else content
    except (zstandard.ZstdError, MemoryError):  # a damaged frame may claim any size
        return None
    return content if content_hash(content) == name else None


def kin_of(columns: Sequence[Any]) -> Kin:
    """A run with its relatives."""
    run_id, head, status, parent, successor, manager, restart_of = columns
    return Kin(
        id=run_id,
        head=head,
        status=status_of(status, f"run {run_id!r}"),
        parent=parent,
        successor=successor,
        manager=manager,
        restart_of=restart_of,
    )

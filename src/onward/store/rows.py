"""Rows to values and back, for every SQL database alike; and what they answer when they are measured.

Here are runs, gates, workers, effects, events, snapshots, blobs, notifications, principals and the audit.
Messages are in `message_rows`, scopes and reservations in `limits`. A row that cannot be read is damaged: it
is reported, and does not hide others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec
import zstandard

from onward.errors import HistoryCorrupt, StoreCorrupt
from onward.model.row import FIXED, GateRow, Notification, Offer, RegisteredWorker, RunRow
from onward.model.run import RunStatus
from onward.store.codec import content_hash
from onward.store.port import runs as port
from onward.store.port.leases import Effect, Holder
from onward.store.port.log import Position, Snapshot, StoredEvent, Write, read_with
from onward.store.port.principals import AuditRow, Principal
from onward.store.port.retention import Kin

log = logging.getLogger("onward.store")
T = TypeVar("T")
R = TypeVar("R")
UNLIMITED = 2**62
IsAlive = Callable[[str, bool], bool]
"""Whether an owner is alive; it is told whether its lease is over."""


class RunColumn(msgspec.Struct, frozen=True):
    """A column of table `run`, as its field in `RunRow` declares it: a text or a number."""

    name: str
    type: type[object]
    is_optional: bool
    is_fixed: bool

    @property
    def is_number(self) -> bool:
        return issubclass(self.type, int)


def _run_column(field: msgspec.structs.FieldInfo) -> RunColumn:
    declared, *marks = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
    kinds = get_args(declared) or (declared,)
    (kind,) = (kind for kind in kinds if kind is not NoneType)
    assert issubclass(kind, int | str), field.name
    return RunColumn(field.name, kind, NoneType in kinds, FIXED in marks)


RUN_COLUMNS = tuple(map(_run_column, msgspec.structs.fields(RunRow)))
"""The columns that `RunRow` declares. Beside them, a row has those that only the stores use."""
CHANGING_COLUMNS = tuple(column for column in RUN_COLUMNS if not column.is_fixed)
ROW_FIELDS = tuple(column.name for column in RUN_COLUMNS)
_HEAD = ROW_FIELDS.index("head")
_FLAGS = tuple(column.name for column in RUN_COLUMNS if column.type is bool)
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
    """The end of the log: its hash is in the column behind the row's fields."""
    return position_of(columns[0], columns[_HEAD], columns[len(ROW_FIELDS)])


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


def principal_values(principal: Principal) -> dict[str, Any]:
    """The columns of a principal; `called` is its name."""
    values = msgspec.structs.asdict(principal)
    return {"called": values.pop("name"), **values, "roles": " ".join(principal.roles)}


def principal_of(columns: Sequence[Any]) -> Principal:
    """A principal from its columns, which are in the order of its fields."""
    values = dict(zip(Principal.__struct_fields__, columns, strict=True))
    return Principal(**{**values, "roles": tuple(values["roles"].split())})


def audit_values(row: AuditRow) -> dict[str, Any]:
    """The columns of a row of the audit that is begun."""
    return msgspec.structs.asdict(row)


def audit_of(columns: Sequence[Any]) -> AuditRow:
    """A row of the audit from its columns, which are in the order of its fields."""
    return AuditRow(**dict(zip(AuditRow.__struct_fields__, columns, strict=True)))


def holder_of(owner: str | None, token: int, is_expired: bool, is_alive: IsAlive) -> Holder | None:
    """Who holds a run, judged by the adapter's own way to tell."""
    return None if owner is None else Holder(owner, token, is_alive(owner, is_expired))


def listed_of(columns: Sequence[Any], is_alive: IsAlive) -> port.Listed:
    """A row with its holder; the last column says whether the lease is over."""
    row = run_row(columns)
    return port.Listed(row, holder_of(row.owner, row.token, bool(columns[-1]), is_alive))


def changed_of(columns: Sequence[Any], is_alive: IsAlive) -> port.ChangedRun:
    """A row with its holder and, in the last column but one, the number of its change."""
    return port.ChangedRun(listed_of(columns, is_alive), columns[-2])


def changes_of(found: Sequence[Sequence[Any]], upto: int, limit: int, is_alive: IsAlive) -> port.Changes:
    """A page of changes; `upto` is the number up to which there were no others before it was read."""
    last = found[-1][-2] if found else 0
    whole = last if len(found) >= limit else max(last, upto)
    runs = sound(found, lambda columns: changed_of(columns, is_alive))
    return port.Changes(sorted(runs, key=lambda run: (run.changed, run.listed.row.id)), whole)


def heads_of(found: Iterable[Sequence[Any]], is_alive: IsAlive) -> dict[str, port.RunHead]:
    """The ends of logs, by run. Each owner is looked at once: it mostly holds several of them."""
    judged: dict[tuple[str, bool], bool] = {}

    def judge(owner: str, is_expired: bool) -> bool:
        if (owner, is_expired) not in judged:
            judged[owner, is_expired] = is_alive(owner, is_expired)
        return judged[owner, is_expired]

    return {head.id: head for head in sound(found, lambda columns: _head(columns, judge))}


def _head(columns: Sequence[Any], is_alive: IsAlive) -> port.RunHead:
    run_id, head, status, changed, owner, token, is_expired = columns
    holder = holder_of(owner, token, bool(is_expired), is_alive)
    return port.RunHead(run_id, head, status_of(status, f"run {run_id!r}"), changed, holder)


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


_DELIVERY_FIELDS = port.Delivery.__struct_fields__


def delivery_of(columns: Sequence[Any]) -> port.Delivery:
    """A notification from its columns, which are in the order of its fields."""
    try:
        return msgspec.convert(dict(zip(_DELIVERY_FIELDS, columns, strict=True)), port.Delivery)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the row of notification {columns[0]!r} is damaged: {error}.") from None


def deliveries_in_order(found: Sequence[port.Delivery]) -> Sequence[port.Delivery]:
    """As they were written: of one run, in the order of its events."""
    return sorted(found, key=lambda one: (one.created_at_us, one.run_id, one.seq, one.id))


def notification_parameters(notification: Notification) -> dict[str, Any]:
    """The columns of a new notification, and what a subscriber's kinds have in them if it is wanted."""
    values = msgspec.structs.asdict(notification)
    return {**values, "kind": notification.kind.value, "mark": f" {notification.kind.value} "}


def attempt_parameters(claimed: port.Delivery, attempted: port.Attempted) -> dict[str, Any]:
    """What came of a try, and which one it was."""
    return {
        "id": claimed.id,
        "subscriber": claimed.subscriber,
        "token": claimed.token,
        **attempted._asdict(),
        "state": attempted.state.value,
    }


def delivery_filters(query: port.DeliveryQuery) -> Mapping[str, Any]:
    """The filters of a list of notifications."""
    place = query.place or (None, None, None)
    names = ("before_us", "before_id", "before_subscriber")
    state = None if query.state is None else query.state.value
    named = ("run_id", query.run_id), ("state", state), *zip(names, place, strict=True)
    return {"limit": query.limit, **{name: value for name, value in named if value is not None}}


MEASURE_QUERIES = (
    *("run_count", "measure_reasons", "measure_queue", "measure_holders", "measure_ended", "measure_stuck"),
    *("measure_needs", "worker_read"),
    "measure_outbox",
)
"""The queries, in the order of the answers in `Found`."""
AnswerRows = Sequence[Sequence[Any]]


class MeasureAnswers(NamedTuple):
    """What the queries answered, at which instant, and how many bytes the database has."""

    at_us: int
    size: int
    statuses: AnswerRows
    reasons: AnswerRows
    queue: AnswerRows
    holders: AnswerRows
    ended: AnswerRows
    stuck: AnswerRows
    needs: AnswerRows
    workers: AnswerRows
    outbox: AnswerRows


def measured(found: MeasureAnswers, is_alive: Callable[[str, bool], bool]) -> port.Measured:
    """The answers as numbers; `is_alive` judges owners."""
    queue = {bool(is_due): (number, oldest) for is_due, number, oldest in found.queue}
    due, oldest_due_us = queue.get(True, (0, None))
    return port.Measured(
        at_us=found.at_us,
        runs=_stands(dict(sound(found.statuses, counted)), dict(sound(found.reasons, _stand))),
        due=due,
        later=queue.get(False, (0, None))[0],
        oldest_due_us=oldest_due_us,
        holdings=holdings_of(
            # A run that is being driven is renewed, so one whose lease is over is stalled even if a lock says
            # that its process lives.
            (owner, number, not is_expired and is_alive(owner, False))
            for owner, is_expired, number in found.holders
        ),
        ended=dict(sound(found.ended, _ended)),
        size=found.size,
        stuck=tuple(port.Stuck(*columns) for columns in found.stuck),
        needs={needs: number for needs, number in found.needs},
        workers=tuple(sound(found.workers, lambda columns: worker_of(columns, is_alive))),
        undelivered=undelivered_of({state: (number, oldest) for state, number, oldest in found.outbox}),
    )


def holdings_of(held: Iterable[tuple[str, int, bool]]) -> tuple[port.HeldRuns, ...]:
    """Who holds how many: from owners, numbers of runs, and whether those are alive."""
    found: dict[str, port.HeldRuns] = {}
    for owner, number, is_alive in held:
        known = found.get(owner, port.HeldRuns(owner, 0, 0))
        stalled = known.stalled + (0 if is_alive else number)
        found[owner] = port.HeldRuns(owner, known.runs + number, stalled)
    return tuple(found[owner] for owner in sorted(found))


def undelivered_of(found: Mapping[str, tuple[int, int]]) -> port.Undelivered:
    """Notifications by state: how many, and when the oldest was created."""
    waiting, oldest_us = found.get("waiting", (0, None))
    return port.Undelivered(waiting, found.get("failed", (0, 0))[0], oldest_us)


def _stands(statuses: Mapping[RunStatus, int], reasons: Mapping[port.Stand, int]) -> Mapping[port.Stand, int]:
    """Runs by stand, from all by status and those that have a reason: the rest have none."""
    without = dict(statuses)
    for stand, number in reasons.items():
        without[stand.status] -= number
    bare = {port.Stand(status, "", False): number for status, number in without.items() if number}
    return {**bare, **reasons}


def _stand(columns: Sequence[Any]) -> tuple[port.Stand, int]:
    status, reason, recoverable, number = columns
    return port.Stand(status_of(status, f"{number} runs"), reason, bool(recoverable)), number


def _ended(columns: Sequence[Any]) -> tuple[RunStatus, port.EndedRuns]:
    status, hour, day = columns
    return status_of(status, f"{day} runs"), port.EndedRuns(hour, day)

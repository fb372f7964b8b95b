"""Check that what is stored about a run agrees with its log: rows, messages, reservations, files on disk.

Numbers must be such that a model can have. Nothing is corrected here. A finding says what differs and what
to do about it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from onward.errors import HistoryCorrupt
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.rows import MessagesSeen, note_message, run_row
from onward.machine.fold.snapshot import decode_run
from onward.machine.fold.steps import note_gates
from onward.machine.lifecycle import apply
from onward.model.call import CallFinished, CallLost, CallStarted
from onward.model.chat import Chunk, ChunkKind, Message, joined_parts
from onward.model.events import Event, StepFinished
from onward.model.limits import (
    AMOUNT_MAX,
    CALL_AMOUNT_MAX,
    MEASURES,
    NO_AMOUNTS,
    Amounts,
    amounts_of,
    is_possible,
    shown_amount,
    used_amounts,
)
from onward.model.row import GateRow, MessageState
from onward.model.run import FOLD_VERSION, Run
from onward.read.lookup import PAGE
from onward.read.view import instant
from onward.receipts import run_directory
from onward.receipts.folder import CHECKPOINT
from onward.receipts.run_directory import Homes, ManifestClaim
from onward.store.codec import check_chain, unseal
from onward.store.port.limits import Limits, Reservation, ReservationState
from onward.store.port.log import ORIGIN, Loaded, Position, RunLog, StoredEvent
from onward.store.port.messages import READ_MAX, MessageQuery, Messages
from onward.store.port.retention import Blobs
from onward.store.port.store import Store


class ReservedCall(NamedTuple):
    """Which call it is: never another."""

    step: str
    call: str
    number: int


class ReservedAs(NamedTuple):
    """What it reserved where, and what it was charged when it ended."""

    scopes: tuple[str, ...]
    reserved: Amounts
    charged: Amounts = NO_AMOUNTS
    is_estimated: bool = False
    state: ReservationState = ReservationState.OPEN


def note_reservation(reserved: dict[ReservedCall, ReservedAs], event: Event) -> None:
    """Follow the calls that reserve something."""
    if isinstance(event, CallStarted):
        if event.reserved is not None:
            scopes = tuple(sorted(set(event.reserved.scopes)))
            key = ReservedCall(event.step, event.call, event.number)
            reserved[key] = ReservedAs(scopes, amounts_of(event.reserved))
    elif isinstance(event, CallFinished | CallLost):
        key = ReservedCall(event.step, event.call, event.number)
        begun = reserved.get(key)
        if begun is not None and begun.state is ReservationState.OPEN:
            reserved[key] = _settled(begun, event)


def _settled(begun: ReservedAs, event: CallFinished | CallLost) -> ReservedAs:
    settled = begun._replace(state=ReservationState.SETTLED)
    is_known = isinstance(event, CallFinished) and is_possible(event.usage, event.cost_micro)
    if isinstance(event, CallLost) or event.is_cost_unknown or not is_known:
        return settled._replace(charged=begun.reserved, is_estimated=True)
    return settled._replace(charged=used_amounts(event.usage, event.cost_micro, begun.reserved))


def compare_reservations(
    expected: Mapping[ReservedCall, ReservedAs], stored: Sequence[Reservation]
) -> list[str]:
    """The rows that are not what the log says. Calls of a fork's parent and of an imported log have none."""
    return [
        f"the reservation of call {row.call} (try {row.number}) of step {row.step} differs from the log"
        for row in stored
        if expected.get(ReservedCall(row.step, row.call, row.number))
        != (row.scopes, row.reserved, row.charged, row.is_estimated, row.state)
    ]


def impossible_usage(event: Event) -> list[str]:
    """What a call reported that no model can have used. Limits count what it had reserved."""
    if not isinstance(event, CallFinished) or is_possible(event.usage, event.cost_micro):
        return []
    tokens = 0 if event.usage is None else event.usage.tokens
    cost = shown_amount("cost", event.cost_micro or 0)
    return [
        f"call {event.call} (try {event.number}) of step {event.step} reports {tokens:,} tokens and a cost "
        f"of {cost}, which is impossible; limits count its reservation instead"
    ]


async def impossible_sums(limits: Limits, reserved: Iterable[Reservation]) -> list[str]:
    """The sums that are beyond what sums grow to, in the scopes of these reservations."""
    scopes = sorted({scope for row in reserved for scope in row.scopes})
    return [
        f"{scope.id} has {shown_amount(measure, amount)} {measure} {what}, which is impossible"
        for scope in await limits.read(scopes)
        for what, amounts in (("spent", scope.spent), ("reserved", scope.reserved))
        for measure, amount in zip(MEASURES, amounts, strict=True)
        if not 0 <= amount <= AMOUNT_MAX + CALL_AMOUNT_MAX
    ]


LISTED_ALL = 2**31 - 1


async def verify_messages(messages: Messages, blobs: Blobs, run_id: str, expected: MessagesSeen) -> list[str]:
    """What is wrong with the messages of these calls. One that streams may have ended since."""
    if not expected:
        return []
    stored = {one.id: one for one in await messages.list(MessageQuery(run_id=run_id, limit=LISTED_ALL))}
    problems: list[str] = []
    for place, (name, state, text) in expected.items():
        found = stored.get(name)
        about = f"message {name} of call {place.call} of step {place.step}"
        if found is None or (found.step, found.call, found.number) != place:
            problems.append(f"{about} is missing")
        elif state is not MessageState.STREAMING and found.state is not state:
            problems.append(f"{about} is {found.state.value}, but the log says {state.value}")
        elif text and found.content != text:
            problems.append(f"{about}: its text is {found.content}, but its call names {text}")
        elif found.state is not MessageState.STREAMING:
            problems += [f"{about}: {why}" for why in await _verify_text(messages, blobs, found)]
    return problems


async def _verify_text(messages: Messages, blobs: Blobs, message: Message) -> list[str]:
    if message.content is not None and await blobs.find(message.content) is None:
        return [f"its content {message.content} is missing or damaged"]
    chunks = await _chunks(messages, message)
    if chunks is None:
        return []  # it was tidied
    is_whole = [chunk.index for chunk in chunks] == list(range(len(chunks))) and len(chunks) > 1
    if not is_whole or chunks[0].kind is not ChunkKind.START or chunks[-1].kind is not ChunkKind.END:
        return ["some of its chunks are missing"]
    said = joined_parts((chunk.kind, chunk.text) for chunk in chunks)
    if message.content is not None and await messages.content(message.id) != said:
        return [f"its chunks differ from the text stored as {message.content}"]
    return []


async def _chunks(messages: Messages, message: Message) -> list[Chunk] | None:
    """The chunks of a message that has ended; None if they are gone."""
    found: list[Chunk] = []
    cursor, last = message.first_position - 1, message.last_position or 0
    while cursor < last and (page := await messages.read(message.chat, after=cursor, limit=READ_MAX)):
        cursor = page[-1].position
        own = [one for one in page if one.message == message.id]
        if any(not isinstance(one, Chunk) for one in own):
            return None
        found += [one for one in own if isinstance(one, Chunk)]
    return found


TRIES_MAX = 5
CHECKPOINT_BYTES_MAX = 64 * 1024 * 1024


class Verified(msgspec.Struct, frozen=True):
    """How many events are intact, and every problem that was found."""

    run_id: str
    events: int
    problems: tuple[str, ...]


async def verify_run(store: Store, run_id: str, homes: Homes | None = None) -> Verified:
    """Read a run's whole log, check its chain, fold it, and compare with what is stored beside it.

    In `homes` the run may have a directory. Its files are written after the commits that they show.
    """
    acknowledged = _acknowledged(homes, run_id)  # before the log, which may grow while it is read
    loaded, beside = await _stored(store, run_id)
    if loaded is None:
        return Verified(run_id, 0, (f"run {run_id} no longer exists",))
    run: Run | None = None
    position, problems, finished = ORIGIN, list[str](), list[str]()
    gates: dict[str, GateRow] = {}
    reserved: dict[ReservedCall, ReservedAs] = {}
    said: MessagesSeen = {}
    try:
        async for page in _pages(store.log, run_id, loaded.position.seq):
            for record in page:
                position = check_chain(position, (record,))
                event = unseal(record)
                before, run = run, apply(run, event, run_id=run_id, at_us=record.at_us, token=record.token)
                note_gates(gates, before, event, run, record.at_us)
                note_reservation(reserved, event)
                problems += impossible_usage(event)
                if record.run_id == run_id:
                    note_message(said, event)
                finished += [event.node] if isinstance(event, StepFinished) else []
                if loaded.snapshot is not None and record.seq == loaded.snapshot.seq:
                    problems += _compare_snapshot(run, position, loaded.snapshot.hash, loaded.snapshot.body)
    except HistoryCorrupt as error:
        return Verified(run_id, position.seq, (str(error),))
    except IllegalEvent as error:
        return Verified(run_id, position.seq, (f"event {position.seq} of run {run_id}: {error}",))
    problems += await _missing_artifacts(store.blobs, run)
    problems += [] if beside is None else _compare_gates(run, gates, beside.gates)
    problems += [] if beside is None else compare_reservations(reserved, beside.reservations)
    problems += [] if beside is None else await impossible_sums(store.limits, beside.reservations)
    problems += await verify_messages(store.messages, store.blobs, run_id, said)
    problems += _lost(run, finished, acknowledged, homes)
    return Verified(
        run_id, position.seq, (*problems, *_compare_row(run, position, loaded.position, loaded.row))
    )


class _Beside(NamedTuple):
    """What is stored beside a log."""

    gates: Sequence[GateRow]
    reservations: Sequence[Reservation]


async def _beside(store: Store, run_id: str) -> _Beside:
    return _Beside(await store.gates.of(run_id), await store.limits.reservations(run_id))


async def _stored(store: Store, run_id: str) -> tuple[Loaded | None, _Beside | None]:
    """The run and what is beside its log at one moment; None for that if it changes too often to find one.

    A gate is opened once and closed once, and so is a reservation: what is the same before and after did not
    change.
    """
    for _ in range(TRIES_MAX):
        beside = await _beside(store, run_id)
        loaded = await store.log.load(run_id, fold_version=FOLD_VERSION)
        if await _beside(store, run_id) == beside:
            return loaded, beside
    return await store.log.load(run_id, fold_version=FOLD_VERSION), None


async def _pages(log: RunLog, run_id: str, head: int) -> AsyncIterator[Sequence[StoredEvent]]:
    """The log up to `head`, and what follows it, unless the run itself has written that since."""
    after = 0
    while page := await log.read(run_id, after=after, limit=min(PAGE, head - after) if after < head else 1):
        if after >= head:
            now = await log.load(run_id, fold_version=FOLD_VERSION)
            if now is None or now.position.seq > after:
                return
        yield page
        after = page[-1].seq


async def _missing_artifacts(blobs: Blobs, run: Run | None) -> list[str]:
    kept = run.artifacts.items() if run is not None else ()
    return [
        f"the content of artifact {id!r} ({artifact.hash}) is missing or damaged"
        for id, artifact in kept
        if await blobs.find(artifact.hash) is None
    ]


def _acknowledged(homes: Homes | None, run_id: str) -> tuple[ManifestClaim | None, bytes | None]:
    """The owner of the run's directory, and the copy of the last checkpoint in it."""
    if homes is None:
        return None, None
    try:
        return homes.said(homes.home(run_id)), homes.read((run_id,), CHECKPOINT, limit=CHECKPOINT_BYTES_MAX)
    except OSError:
        return None, None  # no directory, or not one of ours


def _lost(
    run: Run | None,
    finished: Sequence[str],
    acknowledged: tuple[ManifestClaim | None, bytes | None],
    homes: Homes | None,
) -> list[str]:
    """The steps that are finished according to the run's directory and missing from the log."""
    said, content = acknowledged
    if run is None or homes is None or content is None:
        return []
    start_time = instant(run.created_at_us)
    if not run_directory.is_of(said, run, start_time=start_time, database=homes.identity.name):
        return []
    listed = run_directory.completed_nodes(content)
    if listed == list(finished[: len(listed)]):
        return []
    return [
        f"the log has lost acknowledged steps: {homes.path(run.id, CHECKPOINT)} lists "
        f"{len(listed)} finished steps, the last {listed[-1]!r}, and the log has {len(finished)}"
    ]


def _compare_snapshot(run: Run, position: Position, hash_: bytes, body: bytes) -> list[str]:
    if position.hash != hash_:
        return [f"the snapshot at event {position.seq} belongs to another history"]
    cached = decode_run(body)
    if cached is None:
        return [f"the snapshot at event {position.seq} cannot be decoded"]
    # A snapshot of the parent's log has the parent's id until the fork is folded.
    if cached != run and cached.id == run.id:
        return [f"the snapshot at event {position.seq} differs from the state computed from the log"]
    return []


LATER_COLUMNS = ("tokens", "cost_micro", "ticks")


def _compare_row(run: Run | None, position: Position, stored: Position, row: object) -> list[str]:
    if run is None:
        return ["the log is empty"]
    problems = []
    if position != stored:
        problems.append(f"the row says that the log ends at {stored.seq}, but it ends at {position.seq}")
    expected = run_row(run)
    unknown = LATER_COLUMNS if run.is_final and not getattr(row, "ticks", "") else ()
    for name in expected.__struct_fields__:
        if name in unknown:
            continue  # it ended before rows had these
        found, wanted = getattr(row, name), getattr(expected, name)
        if found != wanted:
            problems.append(f"the row's {name} is {_said(found)}, but the log says {_said(wanted)}")
    return problems


def _compare_gates(run: Run | None, expected: Mapping[str, GateRow], stored: Sequence[GateRow]) -> list[str]:
    if run is not None and run.is_final and not stored:
        return []  # it ended before gates had rows: these were filled in for runs that could still ask
    found = {row.gate: row for row in stored}
    names = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    return [f"the row of gate {name} differs from the log" for name in names]


def _said(value: object) -> str:
    return repr(str(value)) if isinstance(value, str) else repr(value)

"""What must hold of a run of agents after every kill, and when it has ended.

The endpoint's own ledger says which requests were really made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from onward.errors import RunNotFound
from onward.model.call import CallFinished, CallKind, CallLost, CallStarted, CallStatus, call_key
from onward.model.chat import Message
from onward.model.events import Event
from onward.model.limits import NO_AMOUNTS, Amounts, amounts_of, used_amounts
from onward.model.row import MessageState
from onward.operations.here.verify import verify_run
from onward.store.codec import unseal
from onward.store.port.limits import ReservationState
from onward.store.port.messages import MessageQuery
from onward.store.port.store import Store
from onward.testing.model_endpoint import LedgerEntry
from tests.crash.agents.story import TOOLS, text_of
from tests.crash.agents.tools import ServerLedger, UseLedger, wrong_uses
from tests.crash.reading import Reader

ALL = 2**31


@dataclass
class Seen:
    """What was in the log of a run, and in the ledger, at a kill."""

    answered: set[str] = field(default_factory=set)
    requests: int = 0
    uses: int = 0


async def events_of(store: Store, run_id: str) -> list[Event]:
    return [unseal(record) for record in await store.log.read(run_id, after=0, limit=ALL)]


async def look(store: Store, run_id: str, ledger: list[LedgerEntry], uses: int) -> Seen:
    """What a kill left."""
    try:
        events = await events_of(store, run_id)
    except RunNotFound:
        return Seen(requests=len(ledger), uses=uses)
    answered = {
        call_key(run_id, event.step, event.call, 0)
        for event in events
        if isinstance(event, CallFinished) and event.status is CallStatus.OK
    }
    return Seen(answered, len(ledger), uses)


def repeated(seen: list[Seen], ledger: list[LedgerEntry]) -> list[str]:
    """Requests that were made again although their answer was stored."""
    return [
        f"{entry.idempotency_key} was asked again after its answer was stored"
        for one in seen
        for entry in ledger[one.requests :]
        if entry.idempotency_key in one.answered
    ]


def unrecorded(run_id: str, events: list[Event], ledger: list[LedgerEntry]) -> list[str]:
    """Requests that were sent without a start in the log."""
    begun = Counter(
        call_key(run_id, event.step, event.call, 0) for event in events if isinstance(event, CallStarted)
    )
    # After a retry the keys of an agent's requests end with its generation; the log has no such end.
    sent = Counter(str(entry.idempotency_key).partition("~")[0] for entry in ledger)
    return [f"{key}: {sent[key]} requests, {begun[key]} starts" for key in sent if sent[key] > begun[key]]


def charged(events: list[Event]) -> Amounts:
    """What the calls of a log cost together, counted from its events alone."""
    total, opened = NO_AMOUNTS, dict[tuple[str, str], CallStarted]()
    for event in events:
        if isinstance(event, CallStarted):
            opened[event.step, event.call] = event
        elif isinstance(event, CallFinished | CallLost):
            begun = opened.pop((event.step, event.call), None)
            if begun is not None and begun.reserved is not None:
                total = total.plus(_charge(event, amounts_of(begun.reserved)))
    assert opened == {}, "a call is open in the log of a run that has ended"
    return total


def _charge(event: CallFinished | CallLost, most: Amounts) -> Amounts:
    if isinstance(event, CallLost) or event.is_cost_unknown:
        return most
    return used_amounts(event.usage, event.cost_micro, most)


async def judge_end(
    store: Store, run_id: str, reader: Reader, seen: list[Seen], ledger: list[LedgerEntry]
) -> list[str]:
    """What is wrong with a run that has ended, a sentence each."""
    events = await events_of(store, run_id)
    problems = [*(await verify_run(store, run_id)).problems]
    problems += repeated(seen, ledger) + unrecorded(run_id, events, ledger)
    made = await store.limits.reservations(run_id)
    problems += [f"{one.call} is still reserved" for one in made if one.state is ReservationState.OPEN]
    total = NO_AMOUNTS
    for one in made:
        total = total.plus(one.charged)
    if total != charged(events):
        problems.append(f"reservations were charged {total}, the log says {charged(events)}")
    for message in await store.messages.list(MessageQuery(run_id=run_id)):
        problems += _said(message, reader)
    return [f"{run_id}: {problem}" for problem in problems]


async def judge_uses(store: Store, run_id: str, uses: UseLedger, seen: list[Seen]) -> list[str]:
    """What is wrong with the uses of tools, as the world outside counted them."""
    stated = {
        event.call
        for event in await events_of(store, run_id)
        if isinstance(event, CallFinished) and event.by and event.type != CallKind.GATE.value
    }
    wrong = wrong_uses(uses, [(one.answered, one.uses) for one in seen], stated)
    server = ServerLedger(uses.file.with_suffix(".server"))
    if server.uses != 1:
        wrong.append(f"the MCP server was used {server.uses} times")
    wrong += [f"process {pid} of the MCP server was left" for pid in server.left()]
    return [f"{run_id}: {problem}" for problem in wrong]


def _said(message: Message, reader: Reader) -> list[str]:
    """What is wrong with the text of a message, as a reader got it."""
    node = message.step.rpartition("/")[2].partition("#")[0]
    whole = text_of(node)
    if node == TOOLS and reader.texts.get(message.id) == "":
        return []  # it only names the tools
    text, state = reader.texts.get(message.id), reader.ended.get(message.id)
    if text is None or state is None:
        return [f"the reader did not get the whole message of {message.step} {message.call}"]
    if state == MessageState.COMPLETE and text != whole:
        return [f"message of {message.step} {message.call} is complete without all of its text"]
    return [] if whole.startswith(text) else [f"message of {message.step} {message.call} is no beginning"]

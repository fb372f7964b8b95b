"""A call that begins or ends alone: its reservation or settlement goes in the trip of its events.

Nothing is known of the scopes before, so the statement judges them itself, once they are locked. What is
more than adding up (a limit that has no room or is nearly spent, a scope without a row) makes it fail with
all that was sent; then the call is judged as any other: locked first, and charged with a second trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from onward.model.call import Reserved
from onward.model.row import CallClosed, CallOpened
from onward.model.values.amounts import WARN_PERCENT, amounts_of
from onward.model.values.scopes import kind_of
from onward.store.limits import columns
from onward.store.limits.ledger import (
    Ledger,
    ReservationKey,
    UsageKey,
    charged_for,
    key_of,
    opened,
    usage_of,
)
from onward.store.limits.remembered import Remembered
from onward.store.member import Member
from onward.store.port.money.limits import Reservation
from onward.store.port.stored import Write
from onward.store.postgres.link.binary import number, text, texts
from onward.store.postgres.link.failure import ServerError
from onward.store.postgres.statements import QUERIES, Call, advance_alone

NOT_PLAIN = "2201F"  # the square root of a negative number in scope_reserve and scope_settle
RESERVED_BEFORE = "reservation_pkey"  # the reply was lost, and this is the same write again
# Behind those of their run and its place; so with their events in one statement, too.
RESERVE_PARAMETERS = (
    *("call_hash", "step", "call", "number", "token", "scopes", "model"),
    *("reserved_tokens", "reserved_cost_micro", "reserved_calls", "is_priced", "ids", "kinds"),
)
SETTLE_PARAMETERS = (
    *("charged_tokens", "charged_cost_micro", "charged_calls", "is_estimated"),
    *("call_hash", "key_hash", "day", "project", "chat", "pipeline", "model"),
    *("input", "output", "cached", "reserved_tokens", "reserved_cost_micro", "reserved_calls"),
    *("warn_percent", "ids", "kinds"),
)
_PLACE = ("id", "head", "hash")
assert QUERIES["scope_reserve"].parameters == (*_PLACE, *RESERVE_PARAMETERS)
assert QUERIES["scope_settle"].parameters == (*_PLACE, *SETTLE_PARAMETERS)


class Charge(NamedTuple):
    """What one call reserves or settles: the values of a statement behind its events, or of one with them."""

    values: Sequence[bytes | None]
    key: ReservationKey
    scopes: tuple[str, ...]
    made: Reservation | None
    """The reservation, if the call begins."""

    def behind(self, write: Write) -> Call:
        """The statement to send behind the events."""
        name = "scope_settle" if self.made is None else "scope_reserve"
        return Call(
            QUERIES[name], [text(write.run_id), number(write.head.seq), write.head.hash, *self.values]
        )

    def together(self, events: int, values: Sequence[bytes | None]) -> Call:
        """The statement that writes the events, too; `values` are those of `advance_alone`."""
        name = "run_settle_alone" if self.made is None else "run_reserve_alone"
        return Call(advance_alone(events, name), [*values, *self.values])


class OneTrip(msgspec.Struct):
    """The calls of one process that are charged so. `watched` are scopes in which that failed lately."""

    known: Remembered = msgspec.field(default_factory=Remembered)
    watched: set[str] = msgspec.field(default_factory=set)

    def charge(self, members: Sequence[Member]) -> Charge | None:
        """How to charge these members in one trip; None if they are more than one call, or need a look."""
        if len(members) != 1 or len(members[0].write.calls) != 1:
            return None
        write = members[0].write
        (row,) = write.calls
        if isinstance(row, CallClosed):
            known = self.known.open.get(ReservationKey(write.run_id, row.step, row.call, row.number))
            charge = None if known is None else _settling(write, row, known)
        else:
            charge = None if row.reserved is None else _reserving(write, row, row.reserved)
        return charge if charge is not None and self.watched.isdisjoint(charge.scopes) else None

    def charged(self, charge: Charge) -> None:
        """The charge was made."""
        if charge.made is None:
            self.known.ended(charge.key)
        else:
            self.known.begun(charge.key, charge.made)

    def needs_look(self, charge: Charge, error: ServerError) -> bool:
        """Whether a charge failed because it is more than adding up; so it may be the next time."""
        if error.sqlstate != NOT_PLAIN and error.constraint != RESERVED_BEFORE:
            return False
        self.watched.update(charge.scopes)
        return True

    def note(self, ledger: Ledger) -> None:
        """A ledger was written, with no more than its scopes have room for."""
        self.watched.difference_update(ledger.changed)
        self.known.note(ledger)


# Values are put together in the order of the statement's parameters, as for the events: it is done so often.


def _reserving(write: Write, row: CallOpened, reserved: Reserved) -> Charge:
    scopes, joined, arrays = _scopes(reserved.scopes)
    made = opened(write, row, scopes, amounts_of(reserved))
    key = key_of(made)
    values = [text(columns.call_hash(key)), text(row.step), text(row.call), number(row.number)]
    values += (number(made.token), joined, text(row.model), *map(number, made.reserved))
    values += (number(reserved.is_priced), *arrays)
    return Charge(values, key, scopes, made)


def _settling(write: Write, row: CallClosed, found: Reservation) -> Charge:
    key, (counted, used) = key_of(found), usage_of(write, row, found)
    _, _, arrays = _scopes(found.scopes)
    values = [*map(number, charged_for(row, found)), number(row.is_unknown), text(columns.call_hash(key))]
    values += (*_usage(counted), number(used.input), number(used.output), number(used.cached))
    values += (*map(number, found.reserved), number(WARN_PERCENT), *arrays)
    return Charge(values, key, found.scopes, None)


@lru_cache(maxsize=1_000)  # all calls of a run have the same
def _scopes(wanted: tuple[str, ...]) -> tuple[tuple[str, ...], bytes, tuple[bytes, bytes]]:
    """Scopes in their order, as a reservation has them, and as arrays of their ids and kinds."""
    scopes = tuple(sorted(set(wanted)))
    return scopes, text(columns.joined_scopes(scopes)), (texts(scopes), texts([*map(kind_of, scopes)]))


@lru_cache(maxsize=1_000)
def _usage(key: UsageKey) -> tuple[bytes, ...]:
    day, project, chat, _, pipeline, model = map(text, key)
    return text(columns.usage_hash(key)), day, project, chat, pipeline, model

"""Reservations according to a log, to compare with those that are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from onward.model.call import CallFinished, CallLost, CallStarted
from onward.model.events import Event
from onward.model.limits import NO_AMOUNTS, Amounts, amounts_of, used_amounts
from onward.store.port.limits import Reservation, ReservationState


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
    if isinstance(event, CallLost) or event.is_cost_unknown:
        return settled._replace(charged=begun.reserved, is_estimated=True)
    return settled._replace(charged=used_amounts(event.usage, event.cost_micro, begun.reserved))


def compare_reservations(
    expected: Mapping[ReservedCall, ReservedAs], stored: Sequence[Reservation]
) -> list[str]:
    """The rows that are not what the log says. Calls of a fork's parent and of an imported log have none."""
    return [
        f"the reservation of call {row.call} (try {row.number}) of step {row.step} is not what the log says"
        for row in stored
        if expected.get(ReservedCall(row.step, row.call, row.number))
        != (row.scopes, row.reserved, row.charged, row.is_estimated, row.state)
    ]

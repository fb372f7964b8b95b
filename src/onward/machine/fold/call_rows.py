"""What calls do to the tables beside the log: reservations and messages begin and end with them."""

from __future__ import annotations

from collections.abc import Sequence

from onward.model.call import CallFinished, CallLost, CallStarted, CallStatus
from onward.model.events.event import Event
from onward.model.row import CallClosed, CallOpened, CallRow, MessageState
from onward.model.run import OpenCall, Run

CALLS = frozenset({CallStarted, CallFinished, CallLost})


def call_rows(before: Run | None, events: Sequence[Event]) -> tuple[CallRow, ...]:
    """The calls that reserve or stream, and that these events begin or end. They follow on `before`."""
    rows: list[CallRow] = []
    begun: dict[tuple[str, str], CallOpened] = {}
    for event in events:
        if type(event) not in CALLS:  # nearly always
            continue
        if isinstance(event, CallStarted):
            if event.reserved is not None or event.streamed is not None:
                begun[event.step, event.call] = opened = _opened(event)
                rows.append(opened)
        elif isinstance(event, CallFinished | CallLost):
            known = begun.get((event.step, event.call)) or _open_call(before, event)
            if known is not None:
                rows.append(_closed(known, event))
    return tuple(rows) if rows else ()


def _opened(event: CallStarted) -> CallOpened:
    return CallOpened(
        step=event.step,
        call=event.call,
        number=event.number,
        model=event.model,
        reserved=event.reserved,
        streamed=event.streamed,
    )


def _open_call(before: Run | None, event: CallFinished | CallLost) -> OpenCall | None:
    """The call that ends, if it reserved something or had a message."""
    opened = before.open_steps.get(event.step) if before is not None else None
    found = opened.calls.open.get(event.call) if opened is not None and opened.calls is not None else None
    return found if found is not None and (found.is_reserved or found.is_streamed) else None


def _closed(known: CallOpened | OpenCall, event: CallFinished | CallLost) -> CallClosed:
    finished = event if isinstance(event, CallFinished) else None
    return CallClosed(
        step=event.step,
        call=event.call,
        number=event.number,
        state=message_state(event),
        is_reserved=known.is_reserved,
        is_streamed=known.is_streamed,
        model=(finished.model if finished else "") or known.model,
        usage=finished.usage if finished else None,
        cost_micro=finished.cost_micro if finished else None,
        is_unknown=finished is None or finished.is_cost_unknown,
        said=(finished.said or None) if finished else None,
    )


def message_state(event: CallFinished | CallLost) -> MessageState:
    """The state of a message after the event that ends its call."""
    if isinstance(event, CallLost):
        return MessageState.INTERRUPTED
    return MessageState.COMPLETE if event.status is CallStatus.OK else MessageState.ERROR

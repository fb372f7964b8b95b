"""Which messages the calls of a log have, and how they stand."""

from __future__ import annotations

from typing import NamedTuple

from onward.machine.fold.call_rows import message_state
from onward.model.call import CallFinished, CallLost, CallStarted
from onward.model.event import Event
from onward.model.row import MessageState


class CallPlace(NamedTuple):
    """A try of a call."""

    step: str
    call: str
    number: int


MessagesSeen = dict[CallPlace, tuple[str, MessageState]]
"""The message of each call that has one, and its state."""


def note_message(said: MessagesSeen, event: Event) -> None:
    """Note the message that an event begins or ends. A run's own log has all of both."""
    if isinstance(event, CallStarted) and event.streamed is not None:
        place = CallPlace(event.step, event.call, event.number)
        said[place] = event.streamed.message, MessageState.STREAMING
    elif isinstance(event, CallFinished | CallLost):
        place = CallPlace(event.step, event.call, event.number)
        if place in said:
            said[place] = said[place][0], message_state(event)

"""Which messages the calls of a log have, and how they stand."""

from __future__ import annotations

from typing import NamedTuple

from onward.machine.fold.call_rows import message_state
from onward.model.call import CallFinished, CallLost, CallStarted
from onward.model.events.event import Event
from onward.model.row import MessageState


class CallPlace(NamedTuple):
    """A try of a call."""

    step: str
    call: str
    number: int


class MessageSeen(NamedTuple):
    """A message, its state, and the blob of its text if its call names one."""

    message: str
    state: MessageState
    said: str = ""


MessagesSeen = dict[CallPlace, MessageSeen]
"""The message of each call that has one."""


def note_message(said: MessagesSeen, event: Event) -> None:
    """Note the message that an event begins or ends. A run's own log has all of both."""
    if isinstance(event, CallStarted) and event.streamed is not None:
        place = CallPlace(event.step, event.call, event.number)
        said[place] = MessageSeen(event.streamed.message, MessageState.STREAMING)
    elif isinstance(event, CallFinished | CallLost):
        place = CallPlace(event.step, event.call, event.number)
        if place in said:
            text = event.said if isinstance(event, CallFinished) else ""
            said[place] = MessageSeen(said[place].message, message_state(event), text)

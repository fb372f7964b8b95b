"""What is done when a conversation does not fit into its model's context.

The results of tools are what makes conversations long. All but those of the last rounds are replaced by a
note; the whole results are still in the log. If that is not enough, the step fails and says so.
"""

from __future__ import annotations

from msgspec.structs import replace

from onward.agents.model.request import Message, ToolMessage
from onward.agents.step.thread import Thread

ROUNDS_KEPT = 2
CHARACTERS_KEPT = 200


def shortened_thread(thread: Thread) -> Thread | None:
    """The conversation with shorter results of tools; None if there is nothing to shorten."""
    rounds = [at for at, message in enumerate(thread.messages) if isinstance(message, ToolMessage)]
    old = set(rounds[:-ROUNDS_KEPT])
    messages = [_shorter(one) if at in old else one for at, one in enumerate(thread.messages)]
    if tuple(messages) == thread.messages:
        return None
    shorter = Thread(thread.redactor)
    for message in messages:
        shorter.add(message)
    return shorter


def _shorter(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    parts = tuple(replace(part, text=_note(part.text)) for part in message.parts)
    return replace(message, parts=parts)


def _note(text: str) -> str:
    if len(text) <= CHARACTERS_KEPT * 2:
        return text
    return (
        f"{text[:CHARACTERS_KEPT]}\n[the rest of {len(text):,} characters was left out to save space; "
        "use the tool again if you need it]"
    )

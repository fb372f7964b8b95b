"""Conversations as chains of messages: each node is a message and the hash of the node before it.

A conversation of n messages costs n, however often it is continued; forks share what they have in common. A
node is stored as a blob under its hash. So a message is redacted before it is hashed, and the model is asked
with what is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from onward.agents.model.request import AssistantMessage, Message, Reasoning, Text, ToolCall, ToolResult
from onward.errors import InvalidInput
from onward.redact.redactor import Redactor

Find = Callable[[str], Awaitable[bytes | None]]
Part = Text | Reasoning | ToolCall | ToolResult


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message, and the end of the conversation before it."""

    message: Message
    parent: str = ""


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Node)


class Thread:
    """A conversation as far as it is known here: its messages, and the node of the last one.

    `fresh` are the nodes that are not stored yet.
    """

    def __init__(self, redactor: Redactor, head: str = "", messages: tuple[Message, ...] = ()) -> None:
        self.redactor, self.head, self.messages = redactor, head, messages
        self.fresh: dict[str, bytes] = {}

    def add(self, message: Message) -> None:
        """Continue the conversation with what the message says, without secrets."""
        message = _without_secrets(self.redactor, message)
        content = _encode(Node(message, self.head))
        self.head = blake3(content).hexdigest()
        self.messages = (*self.messages, message)
        self.fresh[self.head] = content

    def with_message(self, message: Message) -> Thread:
        """A conversation that continues this one; only the new message is fresh in it."""
        longer = Thread(self.redactor, self.head, self.messages)
        longer.add(message)
        return longer

    @property
    def is_asking(self) -> bool:
        """Whether the last message waits for an answer."""
        return bool(self.messages) and not isinstance(self.messages[-1], AssistantMessage)

    def take_fresh(self) -> dict[str, bytes]:
        """The nodes that are not stored yet; whoever takes them stores them."""
        fresh, self.fresh = self.fresh, {}
        return fresh


async def read_thread(find: Find, head: str, redactor: Redactor) -> Thread:
    """A stored conversation up to its node `head`."""
    messages: list[Message] = []
    at = head
    while at:
        content = await find(at)
        if content is None:
            raise InvalidInput(
                f"message {at} of a stored conversation is missing; retry the step to ask anew."
            )
        node = _decoder.decode(content)
        messages.append(node.message)
        at = node.parent
    return Thread(redactor, head, tuple(reversed(messages)))


def _without_secrets(redactor: Redactor, message: Message) -> Message:
    parts = tuple(_clean(redactor, part) for part in message.parts)
    return message if parts == message.parts else replace(message, parts=parts)


def _clean(redactor: Redactor, part: Part) -> Part:
    """The part without secrets, and without a signature that would no longer fit its text."""
    if isinstance(part, ToolCall):
        clean = redactor.redact
        return replace(part, id=clean(part.id), name=clean(part.name), arguments=clean(part.arguments))
    if isinstance(part, ToolResult):
        return replace(part, call_id=redactor.redact(part.call_id), text=redactor.redact(part.text))
    text = redactor.redact(part.text)
    if isinstance(part, Reasoning) and text != part.text:
        return replace(part, text=text, signature="")
    return replace(part, text=text)

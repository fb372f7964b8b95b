"""Checks that the messages of a run ended as its calls did, and that their text is complete and intact."""

from __future__ import annotations

from onward.machine.fold.rows import MessagesSeen
from onward.model.chat import Chunk, ChunkKind, Message, joined_parts
from onward.model.row import MessageState
from onward.store.port.messages import READ_MAX, MessageQuery, Messages
from onward.store.port.retention import Blobs

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
        return [f"its chunks are not the text that is sealed as {message.content}"]
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

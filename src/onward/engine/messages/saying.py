"""What people say: a message that is whole from the start, stored before anything is done about it."""

from __future__ import annotations

from dataclasses import dataclass

from onward.clock import Clock, Ids
from onward.engine.log.retry_store import retry_store
from onward.errors import InvalidInput
from onward.model.chats.message import RUN_CHATS, ChunkKind, Message, Part, Role, seal_parts
from onward.model.row import MessageState
from onward.model.values.names import check_name
from onward.redact.redactor import Redactor
from onward.store.codec import content_hash
from onward.store.port.chats.messages import MessageQuery, Messages

SAID_CHARACTERS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Saying:
    """Stores what people say in chats, without secrets."""

    messages: Messages
    clock: Clock
    ids: Ids
    redactor: Redactor

    async def say(self, chat: str, text: str) -> Message:
        """Store a user's message at the end of a chat; when this returns, it is durable."""
        if not check_name("the chat", chat):
            raise InvalidInput("no chat is named; write its name, such as support-17.")
        if chat.startswith(RUN_CHATS):
            raise InvalidInput(f"{chat!r} is the chat of a run, where only its models speak; name another.")
        if not text or len(text) > SAID_CHARACTERS_MAX:
            raise InvalidInput(
                f"a message has 1 to {SAID_CHARACTERS_MAX:,} characters; this has {len(text):,}."
            )
        content = seal_parts([Part(ChunkKind.TEXT, self.redactor.redact(text))])
        now_us, id = self.clock.now_us(), self.ids.unique()
        message = Message(
            id=id,
            chat=chat,
            run_id="",
            step="",
            call="",
            number=0,
            role=Role.USER,
            state=MessageState.COMPLETE,
            model="",
            begun_at_us=now_us,
            ended_at_us=now_us,
            first_position=0,
            last_position=0,
            content=content_hash(content),
            is_tidied=True,
        )
        await retry_store(self.clock, lambda: self.messages.say(message, content))
        (stored,) = await self.messages.list(MessageQuery(ids=(id,)))
        return stored

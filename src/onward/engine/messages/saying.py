"""What people and Onward say: messages that are whole from the start, stored before anything is done."""

from __future__ import annotations

import msgspec

from onward.clock import Clock, Ids
from onward.engine.log.retry_store import retry_store
from onward.errors import InvalidInput
from onward.model.chat import RUN_CHATS, ChunkKind, Message, Part, Role, seal_parts
from onward.model.limits import check_name, check_scoped, check_text
from onward.model.row import MessageState
from onward.redact.redactor import Redactor
from onward.store.codec import content_hash
from onward.store.port.messages import MessageQuery, Messages

SAID_CHARACTERS_MAX = 1_000_000


class Saying(msgspec.Struct, frozen=True):
    """Stores what people say in chats, without secrets."""

    messages: Messages
    clock: Clock
    ids: Ids
    redactor: Redactor

    async def say(self, chat: str, text: str) -> Message:
        """Store a user's message at the end of a chat; when this returns, it is durable."""
        check_said(chat, text)
        message, content = self.message(chat, text, id=self.ids.unique())
        return await self._store(message, content)

    async def tell(self, chat: str, text: str, *, id: str) -> Message:
        """Store what Onward itself says in a chat. Under the same id, it is said once."""
        message, content = self.message(chat, text, id=id, role=Role.SYSTEM)
        return await self._store(message, content)

    def message(self, chat: str, text: str, *, id: str, role: Role = Role.USER) -> tuple[Message, bytes]:
        """A whole message without secrets, and its sealed text; nothing is stored."""
        content = seal_parts([Part(ChunkKind.TEXT, self.redactor.redact(text))])
        now_us = self.clock.now_us()
        message = Message(
            id=id,
            chat=chat,
            run_id="",
            step="",
            call="",
            number=0,
            role=role,
            state=MessageState.COMPLETE,
            model="",
            begun_at_us=now_us,
            changed_at_us=now_us,
            ended_at_us=now_us,
            first_position=0,
            last_position=0,
            content=content_hash(content),
            is_tidied=True,
        )
        return message, content

    async def _store(self, message: Message, content: bytes) -> Message:
        await retry_store(self.clock, lambda: self.messages.say(message, content))
        (stored,) = await self.messages.list(MessageQuery(ids=(message.id,)))
        return stored


def check_said(chat: str, text: str) -> None:
    """Refuse what cannot be said in a chat, or not in this one."""
    if not check_name("the chat", chat):
        raise InvalidInput("no chat is named; write its name, such as support-17.")
    check_scoped("the chat", chat)
    if chat.startswith(RUN_CHATS):
        raise InvalidInput(f"{chat!r} is the chat of a run, where only its models speak; name another.")
    check_text("the message", text)
    if not text or len(text) > SAID_CHARACTERS_MAX:
        raise InvalidInput(f"a message has 1 to {SAID_CHARACTERS_MAX:,} characters; this has {len(text):,}.")

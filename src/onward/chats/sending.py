"""Sending a message: it is stored with what it asks for, once, before anything is done about it."""

from __future__ import annotations

import msgspec

from onward.clock import Clock, Ids
from onward.engine.log.retry_store import retry_store
from onward.engine.messages.saying import Saying, check_said
from onward.errors import Refused
from onward.model.chat import Intake, IntakeState, Wish, keyed_message_id
from onward.model.ids import read_wanted
from onward.model.limits import check_name, check_path, check_scoped
from onward.store.codec import content_hash
from onward.store.port.messages import Intakes


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and what is said about it. Under the same `key` of the same sender it is sent once.

    `project`, `pipeline` and `workdir` are those of the run that it may start.
    """

    chat: str
    text: str
    by: str = "user"
    key: str | None = None
    wish: Wish = Wish.NONE
    project: str | None = None
    pipeline: str | None = None
    workdir: str | None = None


class Sending(msgspec.Struct, frozen=True):
    """Stores messages with what they ask for."""

    intakes: Intakes
    saying: Saying
    clock: Clock
    ids: Ids

    async def put(self, sent: Sent) -> tuple[Intake, bool]:
        """Store a message; when this returns, it is durable. Says also whether it was sent before."""
        _check(sent)
        id = self.ids.unique() if sent.key is None else keyed_message_id(sent.by, sent.key)
        message, content = self.saying.message(sent.chat, sent.text, id=id)
        intake = Intake(
            n=0,
            message=id,
            chat=sent.chat,
            body_hash=_hash(sent),
            said_by=sent.by,
            wish=sent.wish,
            project=sent.project or "",
            pipeline=sent.pipeline or "",
            workdir=sent.workdir or "",
            state=IntakeState.PENDING,
            behind="",
            outcome=None,
            run_id="",
            reading="",
            notice="",
            at_us=message.begun_at_us,
            done_at_us=None,
        )
        before = None if sent.key is None else await self.intakes.find(id)
        if before is not None:
            return _same(before, intake, sent.key), True
        await self._check_project(sent)
        stored = await retry_store(self.clock, lambda: self.intakes.put(message, content, intake))
        return _same(stored, intake, sent.key), False

    async def _check_project(self, sent: Sent) -> None:
        """A project is a set of chats: whoever spends in a chat spends in its project."""
        chat = None if sent.project is None else await self.intakes.find_chat(sent.chat)
        if chat is not None and chat.project not in ("", sent.project):
            raise Refused(
                "other_project",
                f"chat {sent.chat} belongs to project {chat.project}, not to {sent.project}; leave the "
                "project out, or say it in another chat.",
                details={"chat": sent.chat, "project": chat.project},
            )


def _same(stored: Intake, intake: Intake, key: str | None) -> Intake:
    """What is stored, if it is this message."""
    if stored.body_hash != intake.body_hash:
        raise Refused(
            "key_reused",
            f"the key {key!r} was used for another message, in chat {stored.chat}; send that "
            "message unchanged, or choose a new key.",
            details={"chat": stored.chat, "key": key},
        )
    return stored


def _check(sent: Sent) -> None:
    check_said(sent.chat, sent.text)
    check_name("the sender", sent.by)
    check_name("the key", sent.key or "")
    check_scoped("the project", sent.project)
    check_path("the directory", sent.workdir)
    if sent.pipeline is not None:
        read_wanted(sent.pipeline)


def _hash(sent: Sent) -> str:
    """What a key stands for. Where the work is to be done is not part of it: whoever sends a message again
    may be elsewhere."""
    asked = {
        name: value for name, value in msgspec.structs.asdict(sent).items() if name not in ("key", "workdir")
    }
    return content_hash(msgspec.json.encode(asked, order="sorted"))

"""What users' messages ask for, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from onward.model.chats.intake import Intake, Outcome
from onward.model.chats.message import Message
from onward.store import rows
from onward.store.intaking import chat_of, intake_of, intake_values
from onward.store.port.chats.intakes import FREE_MAX, ChatRow
from onward.store.postgres.chats.projecting import arriving_calls
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Rows, Wire
from onward.store.postgres.statements import BEGIN, COMMIT, Call, call, filtered_call
from onward.store.postgres.writing.calls import blob_call


class PostgresIntakes:
    """What the messages in the chats of one PostgreSQL database ask for."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def put(self, message: Message, content: bytes, intake: Intake) -> Intake:
        return await self._connections.use(lambda wire: _put(wire, message, content, intake))

    async def find(self, message: str) -> Intake | None:
        found = await self._ask(call("intake_get", message=message))
        return intake_of(found[0]) if found else None

    async def list(self, chat: str, *, is_open: bool, limit: int) -> Sequence[Intake]:
        name = "intake_open" if is_open else "intake_of_chat"
        return rows.sound(await self._ask(call(name, chat=chat, limit=limit)), intake_of)

    async def free(
        self, *, chat: str | None = None, after: int = 0, limit: int = FREE_MAX
    ) -> Sequence[Intake]:
        given: dict[str, str | int] = {"after": after} if chat is None else {"after": after, "chat": chat}
        return rows.sound(await self._ask(filtered_call("intake_free", given, limit=limit)), intake_of)

    async def note(self, message: str, *, seen: str, behind: str, reading: str) -> bool:
        noted = call("intake_note", message=message, seen=seen, behind=behind, reading=reading)
        return bool(await self._ask(noted))

    async def begin(self, message: str, *, seen: str, turn: int, run_id: str, reading: str) -> bool:
        asked = call("intake_begin", message=message, seen=seen, turn=turn, run_id=run_id, reading=reading)
        return bool(await self._ask(asked))

    async def settle(
        self, message: str, *, outcome: Outcome, run_id: str, notice: str, reading: str, at_us: int
    ) -> bool:
        asked = call(
            "intake_settle",
            message=message,
            outcome=outcome.value,
            run_id=run_id,
            notice=notice,
            reading=reading,
            at_us=at_us,
        )
        return bool(await self._ask(asked))

    async def find_chat(self, chat: str) -> ChatRow | None:
        found = await self._ask(call("chat_get", chat=chat))
        return chat_of(found[0]) if found else None

    async def list_chats(self, *, before: int | None, limit: int) -> Sequence[ChatRow]:
        given = {} if before is None else {"before": before}
        return rows.sound(await self._ask(filtered_call("chat_list", given, limit=limit)), chat_of)

    async def _ask(self, asked: Call) -> Rows:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return found


async def _put(wire: Wire, message: Message, content: bytes, intake: Intake) -> Intake:
    assert message.content is not None
    kept = blob_call(message.content, content, message.begun_at_us)
    *_, found, _ = await wire.run(
        BEGIN,
        *arriving_calls([message]),
        kept,
        call("intake_put", **intake_values(intake)),
        call("chat_project", chat=intake.chat, project=intake.project),
        call("intake_get", message=intake.message),
        COMMIT,
    )
    return intake_of(found[0])

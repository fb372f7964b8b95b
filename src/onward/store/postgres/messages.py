"""Messages of chats in PostgreSQL, and what users' messages ask for.

A flush is one transaction on a connection of its own, and waits for no chat.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from onward.model.chat import Heard, Intake, IntakeOutcome, Message, Part
from onward.model.row import MessageState
from onward.store import message_rows, rows
from onward.store.message_rows import JudgedFlush, LockedMessage, chat_of, intake_of, intake_values
from onward.store.port.messages import FREE_MAX, READ_MAX, ChatRow, Flushed, Growth, MessageQuery
from onward.store.postgres import statements
from onward.store.postgres.calls import arriving_calls, blob_call
from onward.store.postgres.pool import Pool, Rows, Wire
from onward.store.postgres.read import read_blobs


class PostgresMessages:
    """What is said in the chats of one PostgreSQL database."""

    def __init__(self, flushing: Pool, connections: Pool) -> None:
        self._flushing, self._connections = flushing, connections

    async def flush(self, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
        return await self._flushing.use(lambda wire: _flush(wire, batch, at_us)) if batch else ()

    async def say(self, message: Message, content: bytes) -> None:
        assert message.content is not None
        kept = blob_call(message.content, content, message.begun_at_us)
        await self._connections.use(
            lambda wire: wire.run(statements.BEGIN, *arriving_calls([message]), kept, statements.COMMIT)
        )

    async def read(self, chat: str, *, after: int, limit: int = READ_MAX) -> Sequence[Heard]:
        async def read(wire: Wire) -> Sequence[Heard]:
            # Of one moment: what is tidied in between would be missed, or come twice.
            _, found, gone = await wire.run(
                statements.BEGIN_LOOKING,
                statements.call("chunk_read", chat=chat, after=after, limit=limit),
                statements.call("message_resets", chat=chat, after=after, limit=limit),
            )
            contents = await read_blobs(wire, [columns[-1] for columns in gone])
            chunks = [message_rows.chunk_of(columns) for columns in found]
            return message_rows.heard_in_order(chunks, gone, contents, limit)

        return await self._connections.use(read)

    async def positions(self, chats: Sequence[str]) -> Mapping[str, int]:
        return dict(await self._ask(statements.call("chat_positions", chats=statements.texts(chats))))

    async def list(self, query: MessageQuery) -> Sequence[Message]:
        name, values = message_rows.message_listing(query)
        asked = (
            statements.call("message_named", ids=statements.texts(query.ids))
            if query.ids
            else statements.call(name, **values)
        )
        return rows.sound(await self._ask(asked), message_rows.message_of)

    async def content(self, message: str) -> Sequence[Part] | None:
        return await self._connections.use(lambda wire: _content(wire, message))

    async def contents(self, messages: Collection[str]) -> Mapping[str, Sequence[Part]]:
        return await self._connections.use(lambda wire: _contents(wire, messages))

    async def seal(self, *, at_us: int, limit: int) -> int:
        return await self._connections.use(lambda wire: _seal(wire, at_us, limit))

    async def tidy(self, *, before_us: int, limit: int) -> int:
        return await self._connections.use(lambda wire: _tidy(wire, before_us, limit))

    async def _ask(self, asked: statements.Call) -> Rows:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return found


async def _flush(wire: Wire, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
    ids = statements.texts(sorted({growth.message for growth in batch}))
    chats = statements.texts(sorted({growth.chat for growth in batch}))
    _, locked, seen = await wire.run(
        statements.BEGIN,
        statements.call("message_lock", chats=chats, ids=ids),
        statements.call("message_look", ids=ids),
    )
    found = {columns[0]: LockedMessage(*columns[1:]) for columns in locked}
    streaming = {(id, run_id, token) for id, run_id, state, token in seen if state == MessageState.STREAMING}
    judged = JudgedFlush()
    answers = [
        # Only what nobody holds can be judged; but what is over stays over.
        Flushed.LATER
        if growth.message not in found and (growth.message, growth.run_id, growth.token) in streaming
        else judged.add(growth, found.get(growth.message))
        for growth in batch
    ]
    await wire.run(*_growing(judged, at_us), statements.COMMIT)
    return answers


def _growing(judged: JudgedFlush, at_us: int) -> Sequence[statements.Call]:
    if not judged.chunks:
        return ()
    chat, position, message, index, kind, text = zip(*judged.chunks, strict=True)
    return (
        statements.call(
            "chunk_insert",
            chat=statements.numbers(chat),
            position=statements.numbers(position),
            message=statements.numbers(message),
            index=statements.numbers(index),
            kind=statements.texts(kind),
            text=statements.texts(text),
        ),
        statements.call(
            "message_move",
            n=statements.numbers([*judged.messages]),
            next_index=statements.numbers([*judged.messages.values()]),
            at_us=at_us,
        ),
        statements.call(
            "chat_move",
            n=statements.numbers([*judged.chats]),
            position=statements.numbers([*judged.chats.values()]),
        ),
    )


async def _content(wire: Wire, message: str) -> Sequence[Part] | None:
    _, found = await wire.run(statements.BEGIN_LOOKING, statements.call("message_get", id=message))
    if not found:
        return None
    n, name = found[0]
    if name is not None:
        return message_rows.unsealed_content((await read_blobs(wire, (name,))).get(name))
    (chunks,) = await wire.run(statements.call("message_chunks", n=n))
    return message_rows.parts_of(chunks)


async def _contents(wire: Wire, messages: Collection[str]) -> Mapping[str, Sequence[Part]]:
    # Of one moment: the chunks of a message may be tidied as soon as it is sealed.
    _, found = await wire.run(
        statements.BEGIN_LOOKING, statements.call("message_contents", ids=statements.texts(list(messages)))
    )
    open_ = [(message, n) for message, n, name in found if name is None]
    blobs = await read_blobs(wire, [name for _, _, name in found if name is not None])
    chunks = await wire.run(*(statements.call("message_chunks", n=n) for _, n in open_)) if open_ else ()
    said = {message: message_rows.unsealed_content(blobs.get(name)) for message, _, name in found if name}
    said |= {message: message_rows.parts_of(one) for (message, _), one in zip(open_, chunks, strict=True)}
    return {message: parts for message, parts in said.items() if parts is not None}


async def _seal(wire: Wire, at_us: int, limit: int) -> int:
    _, found = await wire.run(statements.BEGIN, statements.call("message_unsealed", limit=limit))
    texts_of = await wire.run(*(statements.call("message_chunks", n=columns[0]) for columns in found))
    sealed = [message_rows.sealed_content(message_rows.parts_of(chunks)) for chunks in texts_of]
    await wire.run(
        *(blob_call(name, content, at_us) for name, content in sorted(dict(sealed).items())),
        *(
            statements.call("message_seal", n=n, content=name)
            for (n,), (name, _) in zip(found, sealed, strict=True)
        ),
        statements.COMMIT,
    )
    return len(found)


async def _tidy(wire: Wire, before_us: int, limit: int) -> int:
    _, found = await wire.run(
        statements.BEGIN, statements.call("message_untidied", before_us=before_us, limit=limit)
    )
    calls = [
        asked
        for n, chat, first, last in found
        for asked in (
            statements.call("chunk_tidy", n=n, chat=chat, first=first, last=last),
            statements.call("message_tidy", n=n),
        )
    ]
    await wire.run(*calls, statements.COMMIT)
    return len(found)


class PostgresIntakes:
    """What the messages in the chats of one PostgreSQL database ask for."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def put(self, message: Message, content: bytes, intake: Intake) -> Intake:
        return await self._connections.use(lambda wire: _put_intake(wire, message, content, intake))

    async def find(self, message: str) -> Intake | None:
        found = await self._ask(statements.call("intake_get", message=message))
        return intake_of(found[0]) if found else None

    async def list(self, chat: str, *, is_open: bool, limit: int) -> Sequence[Intake]:
        name = "intake_open" if is_open else "intake_of_chat"
        return rows.sound(await self._ask(statements.call(name, chat=chat, limit=limit)), intake_of)

    async def free(
        self, *, chat: str | None = None, after: int = 0, limit: int = FREE_MAX
    ) -> Sequence[Intake]:
        given: dict[str, str | int] = {"after": after} if chat is None else {"after": after, "chat": chat}
        return rows.sound(
            await self._ask(statements.filtered_call("intake_free", given, limit=limit)), intake_of
        )

    async def note(self, message: str, *, seen: str, behind: str, reading: str) -> bool:
        noted = statements.call("intake_note", message=message, seen=seen, behind=behind, reading=reading)
        return bool(await self._ask(noted))

    async def begin(self, message: str, *, seen: str, turn: int, run_id: str, reading: str) -> bool:
        asked = statements.call(
            "intake_begin", message=message, seen=seen, turn=turn, run_id=run_id, reading=reading
        )
        return bool(await self._ask(asked))

    async def settle(
        self, message: str, *, outcome: IntakeOutcome, run_id: str, notice: str, reading: str, at_us: int
    ) -> bool:
        asked = statements.call(
            "intake_settle",
            message=message,
            outcome=outcome.value,
            run_id=run_id,
            notice=notice,
            reading=reading,
            at_us=at_us,
        )
        return bool(await self._ask(asked))

    async def waiting(self, chats: Collection[str]) -> Mapping[str, int]:
        return dict(await self._ask(statements.call("intake_waiting", chats=statements.texts(list(chats)))))

    async def find_chat(self, chat: str) -> ChatRow | None:
        found = await self._ask(statements.call("chat_get", chat=chat))
        return chat_of(found[0]) if found else None

    async def list_chats(self, *, before: int | None, limit: int) -> Sequence[ChatRow]:
        given = {} if before is None else {"before": before}
        return rows.sound(await self._ask(statements.filtered_call("chat_list", given, limit=limit)), chat_of)

    async def _ask(self, asked: statements.Call) -> Rows:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return found


async def _put_intake(wire: Wire, message: Message, content: bytes, intake: Intake) -> Intake:
    assert message.content is not None
    kept = blob_call(message.content, content, message.begun_at_us)
    *_, found, _ = await wire.run(
        statements.BEGIN,
        *arriving_calls([message]),
        kept,
        statements.call("intake_put", **intake_values(intake)),
        statements.call("chat_project", chat=intake.chat, project=intake.project),
        statements.call("intake_get", message=intake.message),
        statements.COMMIT,
    )
    return intake_of(found[0])

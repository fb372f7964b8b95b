"""Messages in PostgreSQL: a flush is one transaction on a connection of its own, and waits for no chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onward.model.chats.message import Heard, Message, Part
from onward.model.row import MessageState
from onward.store import growing, rows
from onward.store.growing import Judged, LockedMessage
from onward.store.port.chats.messages import READ_MAX, Flushed, Growth, MessageQuery
from onward.store.postgres.chats.projecting import arriving_calls
from onward.store.postgres.link.binary import numbers, texts
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Rows, Wire
from onward.store.postgres.reading import read_blobs
from onward.store.postgres.statements import BEGIN, BEGIN_LOOKING, COMMIT, Call, call
from onward.store.postgres.writing.calls import blob_call


class PostgresMessages:
    """What is said in the chats of one PostgreSQL database."""

    def __init__(self, flushing: Pool, connections: Pool) -> None:
        self._flushing, self._connections = flushing, connections

    async def flush(self, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
        return await self._flushing.use(lambda wire: _flush(wire, batch, at_us)) if batch else ()

    async def say(self, message: Message, content: bytes) -> None:
        assert message.content is not None
        kept = blob_call(message.content, content, message.begun_at_us)
        await self._connections.use(lambda wire: wire.run(BEGIN, *arriving_calls([message]), kept, COMMIT))

    async def read(self, chat: str, *, after: int, limit: int = READ_MAX) -> Sequence[Heard]:
        async def read(wire: Wire) -> Sequence[Heard]:
            # Of one moment: what is tidied in between would be missed, or come twice.
            _, found, gone = await wire.run(
                BEGIN_LOOKING,
                call("chunk_read", chat=chat, after=after, limit=limit),
                call("message_resets", chat=chat, after=after, limit=limit),
            )
            contents = await read_blobs(wire, [columns[-1] for columns in gone])
            chunks = [growing.chunk_of(columns) for columns in found]
            return growing.in_order(chunks, gone, contents, limit)

        return await self._connections.use(read)

    async def positions(self, chats: Sequence[str]) -> Mapping[str, int]:
        return dict(await self._ask(call("chat_positions", chats=texts(chats))))

    async def list(self, query: MessageQuery) -> Sequence[Message]:
        name, values = growing.listing(query)
        asked = call("message_named", ids=texts(query.ids)) if query.ids else call(name, **values)
        return rows.sound(await self._ask(asked), growing.message_of)

    async def content(self, message: str) -> Sequence[Part] | None:
        return await self._connections.use(lambda wire: _content(wire, message))

    async def seal(self, *, at_us: int, limit: int) -> int:
        return await self._connections.use(lambda wire: _seal(wire, at_us, limit))

    async def tidy(self, *, before_us: int, limit: int) -> int:
        return await self._connections.use(lambda wire: _tidy(wire, before_us, limit))

    async def _ask(self, asked: Call) -> Rows:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return found


async def _flush(wire: Wire, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
    ids = texts(sorted({growth.message for growth in batch}))
    chats = texts(sorted({growth.chat for growth in batch}))
    _, locked, seen = await wire.run(
        BEGIN, call("message_lock", chats=chats, ids=ids), call("message_look", ids=ids)
    )
    found = {columns[0]: LockedMessage(*columns[1:]) for columns in locked}
    streaming = {(id, run_id, token) for id, run_id, state, token in seen if state == MessageState.STREAMING}
    judged = Judged()
    answers = [
        # Only what nobody holds can be judged; but what is over stays over.
        Flushed.LATER
        if growth.message not in found and (growth.message, growth.run_id, growth.token) in streaming
        else judged.add(growth, found.get(growth.message))
        for growth in batch
    ]
    await wire.run(*_growing(judged, at_us), COMMIT)
    return answers


def _growing(judged: Judged, at_us: int) -> Sequence[Call]:
    if not judged.chunks:
        return ()
    chat, position, message, index, kind, text = zip(*judged.chunks, strict=True)
    return (
        call(
            "chunk_insert",
            chat=numbers(chat),
            position=numbers(position),
            message=numbers(message),
            index=numbers(index),
            kind=texts(kind),
            text=texts(text),
        ),
        call(
            "message_move",
            n=numbers([*judged.messages]),
            next_index=numbers([*judged.messages.values()]),
            at_us=at_us,
        ),
        call("chat_move", n=numbers([*judged.chats]), position=numbers([*judged.chats.values()])),
    )


async def _content(wire: Wire, message: str) -> Sequence[Part] | None:
    _, found = await wire.run(BEGIN_LOOKING, call("message_get", id=message))
    if not found:
        return None
    n, name = found[0]
    if name is not None:
        return growing.unsealed((await read_blobs(wire, (name,))).get(name))
    (chunks,) = await wire.run(call("message_chunks", n=n))
    return growing.parts_of(chunks)


async def _seal(wire: Wire, at_us: int, limit: int) -> int:
    _, found = await wire.run(BEGIN, call("message_unsealed", limit=limit))
    texts_of = await wire.run(*(call("message_chunks", n=columns[0]) for columns in found))
    sealed = [growing.sealed_content(growing.parts_of(chunks)) for chunks in texts_of]
    await wire.run(
        *(blob_call(name, content, at_us) for name, content in sorted(dict(sealed).items())),
        *(call("message_seal", n=n, content=name) for (n,), (name, _) in zip(found, sealed, strict=True)),
        COMMIT,
    )
    return len(found)


async def _tidy(wire: Wire, before_us: int, limit: int) -> int:
    _, found = await wire.run(BEGIN, call("message_untidied", before_us=before_us, limit=limit))
    calls = [
        asked
        for n, chat, first, last in found
        for asked in (call("chunk_tidy", n=n, chat=chat, first=first, last=last), call("message_tidy", n=n))
    ]
    await wire.run(*calls, COMMIT)
    return len(found)

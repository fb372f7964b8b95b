"""Messages: visible at once, written by one writer, and read by position without loss or repetition."""

from __future__ import annotations

from asyncio import gather, sleep
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onward.errors import LeaseLost
from onward.model.call import CallFinished, CallLost, CallStarted, CallStatus, Streamed
from onward.model.chat import Chunk, ChunkKind, Heard, Message, Role, chat_of_run, message_id
from onward.model.events import RunClaimed, StepStarted
from onward.model.row import MessageState
from onward.store.port.messages import Flushed, Growth, MessageQuery
from onward.store.port.store import Store
from tests.conformance.drafts import Draft, held

START, TEXT, REASONING, TOOL_CALL, TOOL_RESULT, END = ChunkKind
STORED, LATER, REFUSED = Flushed
STEP = "start#1"


async def speaking(store: Store, *, run_id: str | None = None, chat: str | None = None) -> Draft:
    """A held run in whose open step a model has begun to answer."""
    draft = await held(store, run_id)
    begun = StepStarted(step=STEP, node="start", attempt=1)
    return await appended(store, draft, begun, call_of(draft.id, chat=chat))


def call_of(run_id: str, call: str = "m1", *, number: int = 1, chat: str | None = None) -> CallStarted:
    streamed = Streamed(chat=chat or chat_of_run(run_id), message=message_id(run_id, STEP, call, number))
    return CallStarted(
        step=STEP, attempt=1, call=call, number=number, type="model", model="gpt", streamed=streamed
    )


async def appended(store: Store, draft: Draft, *events: object) -> Draft:
    write, after = draft.then(*events)  # type: ignore[arg-type]
    await store.log.append(write, draft.lease)
    return after


def answered(call: str = "m1", status: CallStatus = CallStatus.OK) -> CallFinished:
    return CallFinished(step=STEP, attempt=1, call=call, number=1, status=status, value="all of it")


def growth(draft: Draft, *texts: str, first: int = 1, call: str = "m1", chat: str | None = None) -> Growth:
    chunks = [(TEXT, text) for text in texts]
    message = message_id(draft.id, STEP, call, 1)
    return Growth(chat or chat_of_run(draft.id), message, draft.id, draft.run.token, first, chunks)


async def heard(store: Store, chat: str, after: int = 0) -> list[tuple[int, str, str]]:
    """What is behind a position: position, kind and text."""
    found = await store.messages.read(chat, after=after)
    return [(one.position, one.kind.value, one.text) for one in chunks_of(found)]


def chunks_of(found: Sequence[Heard]) -> list[Chunk]:
    return [one for one in found if isinstance(one, Chunk)]


async def only(store: Store, run_id: str) -> Message:
    (found,) = await store.messages.list(MessageQuery(run_id=run_id))
    return found


async def test_a_message_is_there_with_the_event_that_begins_its_call(store: Store, other: Store) -> None:
    """An empty message with the state `streaming` exists before the model says anything."""
    draft = await speaking(store)
    message = await only(other, draft.id)
    assert (message.role, message.state, message.model) == (Role.ASSISTANT, MessageState.STREAMING, "gpt")
    assert (message.step, message.call, message.number) == (STEP, "m1", 1)
    assert (message.chat, message.ended_at_us) == (chat_of_run(draft.id), None)
    assert await heard(other, message.chat) == [(1, "start", "assistant")]
    assert await other.messages.content(message.id) == ()


async def test_a_refused_append_says_nothing(store: Store, other: Store) -> None:
    stale = await held(store)
    claim = RunClaimed(token=stale.run.token + 1, worker=other.leases.owner, lost=True)
    write, _ = stale.then(claim)
    await other.log.control(stale.id, since=stale.position.seq, append_id="claim", decide=lambda *_: write)
    write, _ = stale.then(StepStarted(step=STEP, node="start", attempt=1), call_of(stale.id))
    with pytest.raises(LeaseLost):
        await store.log.append(write, stale.lease)
    assert await store.messages.list(MessageQuery(run_id=stale.id)) == []
    assert await store.messages.positions([chat_of_run(stale.id)]) == {}


async def test_the_same_append_again_begins_and_ends_a_message_once(store: Store) -> None:
    draft = await held(store)
    begins, speaking = draft.then(StepStarted(step=STEP, node="start", attempt=1), call_of(draft.id))
    for _ in range(2):
        await store.log.append(begins, draft.lease)
    ends, _ = speaking.then(answered())
    for _ in range(2):
        await store.log.append(ends, draft.lease)
    chat = chat_of_run(draft.id)
    assert await heard(store, chat) == [(1, "start", "assistant"), (2, "end", "complete")]


async def test_text_is_read_while_it_grows(store: Store, other: Store) -> None:
    """What was flushed is there for everybody, before the answer is complete."""
    draft = await speaking(store)
    chat = chat_of_run(draft.id)
    assert await store.messages.flush([growth(draft, "Once ", "upon")], 1) == [STORED]
    assert await heard(other, chat, 1) == [(2, "text", "Once "), (3, "text", "upon")]
    assert await store.messages.flush([growth(draft, " a time", first=3)], 1) == [STORED]
    assert await heard(other, chat, 3) == [(4, "text", " a time")]
    assert await other.messages.content(message_id(draft.id, STEP, "m1", 1)) == ((TEXT, "Once upon a time"),)
    assert await other.messages.positions([chat, "nobody's"]) == {chat: 4}


async def test_the_end_has_the_state_of_the_call(store: Store) -> None:
    """A message is streaming, complete, in error or interrupted."""
    ends = {
        "complete": answered(),
        "error": answered(status=CallStatus.ERROR),
        "interrupted": CallLost(step=STEP, call="m1", number=1, why="gone"),
    }
    for state, event in ends.items():
        draft = await speaking(store)
        await store.messages.flush([growth(draft, "so far")], 1)
        after = await appended(store, draft, event)
        message = await only(store, draft.id)
        assert (message.state, message.last_position) == (state, 3)
        assert message.ended_at_us == after.run.updated_at_us
        assert (await heard(store, message.chat))[1:] == [(2, "text", "so far"), (3, "end", state)]


async def test_a_flush_whose_reply_was_lost_is_made_again(store: Store) -> None:
    """The same chunks under the same indexes, and newer text under the next. I34."""
    draft = await speaking(store)
    await store.messages.flush([growth(draft, "a", "b")], 1)
    assert await store.messages.flush([growth(draft, "a", "b")], 1) == [STORED]
    assert await store.messages.flush([growth(draft, "a", "b", "c")], 1) == [STORED]
    assert [text for _, _, text in await heard(store, chat_of_run(draft.id), 1)] == ["a", "b", "c"]


async def test_a_chunk_after_the_end_is_refused(store: Store, other: Store) -> None:
    """I34."""
    draft = await speaking(store)
    await appended(store, draft, answered())
    for process in (store, other):
        assert await process.messages.flush([growth(draft, "late")], 1) == [REFUSED]
    assert await heard(store, chat_of_run(draft.id), 2) == []


async def test_a_writer_that_wakes_after_a_take_over_writes_nothing(store: Store, other: Store) -> None:
    """I34."""
    draft = await speaking(store)
    claim = RunClaimed(token=draft.run.token + 1, worker=other.leases.owner, lost=True)
    write, taken = draft.then(CallLost(step=STEP, call="m1", number=1, why="gone"), claim)
    await other.log.control(draft.id, since=draft.position.seq, append_id="claim", decide=lambda *_: write)
    begun = StepStarted(step=STEP, node="start", attempt=1)
    again, _ = taken.then(begun, call_of(draft.id, number=2))
    await other.log.append(again, taken.lease)
    fresh = growth(taken, "new")._replace(message=message_id(draft.id, STEP, "m1", 2))
    stale = fresh._replace(token=draft.run.token)
    assert await store.messages.flush([growth(draft, "old"), stale], 1) == [REFUSED, REFUSED]
    assert await other.messages.flush([fresh], 1) == [STORED]
    texts = [text for _, kind, text in await heard(store, chat_of_run(draft.id)) if kind == "text"]
    assert texts == ["new"]


async def test_only_its_own_message_is_refused(store: Store) -> None:
    one, ended, third = [await speaking(store, chat="together") for _ in range(3)]
    await appended(store, ended, answered())
    batch = [growth(draft, draft.id, chat="together") for draft in (one, ended, third)]
    missing = batch[0]._replace(message="nobody's")
    ahead = growth(one, "ahead", first=9, chat="together")
    assert await store.messages.flush([*batch, missing], 1) == [STORED, REFUSED, STORED, REFUSED]
    assert await store.messages.flush([ahead], 1) == [REFUSED]
    assert [text for _, kind, text in await heard(store, "together") if kind == "text"] == [one.id, third.id]


async def test_positions_of_a_chat_have_no_gap_whoever_writes(store: Store, other: Store) -> None:
    """Streams of several processes in one chat, and a reader that never misses what commits."""
    drafts = [(process, await speaking(process, chat="busy")) for process in (store, other) for _ in range(3)]

    async def write(process: Store, draft: Draft) -> None:
        index = 1
        while index <= 10:
            (came,) = await process.messages.flush([growth(draft, f"{index};", first=index, chat="busy")], 1)
            assert came is not REFUSED
            index += came is STORED
        await appended(process, draft, answered())

    seen: list[Chunk] = []

    async def follow() -> None:
        while sum(chunk.kind is END for chunk in seen) < len(drafts):
            seen.extend(chunks_of(await store.messages.read("busy", after=len(seen), limit=7)))
            await sleep(0)

    await gather(follow(), *(write(process, draft) for process, draft in drafts))
    assert [chunk.position for chunk in seen] == list(range(1, 12 * len(drafts) + 1))
    for _, draft in drafts:
        own = [chunk for chunk in seen if chunk.message == message_id(draft.id, STEP, "m1", 1)]
        assert [chunk.index for chunk in own] == list(range(12))
        assert "".join(chunk.text for chunk in own[1:-1]) == "".join(f"{n};" for n in range(1, 11))
        assert (own[0].kind, own[-1].kind) == (START, END)


async def test_every_text_comes_back_as_it_was(store: Store) -> None:
    draft = await speaking(store)
    texts = ["\0", "\U0010ffff0", "a\nb", "ä✔\U0001f600", ""]
    await store.messages.flush([growth(draft, *texts)], 1)
    assert [text for _, _, text in await heard(store, chat_of_run(draft.id), 1)] == texts


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text(alphabet="ab \n", min_size=1, max_size=5), min_size=1, max_size=6),
    tidied_at=st.integers(0, 8),
    limit=st.integers(1, 4),
)
async def test_a_reader_that_reconnects_at_every_position_sees_every_character_once(
    store: Store, texts: list[str], tidied_at: int, limit: int
) -> None:
    """Also if the chunks are tidied away while it is gone; then it gets the message whole, once."""
    draft = await speaking(store)
    chat = chat_of_run(draft.id)
    await store.messages.flush([growth(draft, *texts)], 1)
    await appended(store, draft, answered())
    cursor, text, ends = 0, "", 0
    while found := await store.messages.read(chat, after=cursor, limit=limit):
        for one in found[:1]:  # the connection breaks after each
            assert one.position > cursor
            cursor = one.position
            if isinstance(one, Chunk):
                text, ends = text + (one.text if one.kind is TEXT else ""), ends + (one.kind is END)
            else:
                text, ends = "".join(part.text for part in one.parts), ends + 1
        if cursor == tidied_at:
            await store.messages.seal(at_us=1, limit=1_000)
            await store.messages.tidy(before_us=2**60, limit=1_000)
    assert (text, ends) == ("".join(texts), 1)

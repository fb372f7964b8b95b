"""The text of messages that have ended: sealed as a blob, then without chunks, and kept with its chat."""

from __future__ import annotations

import pytest

from onward.errors import Refused
from onward.model.chat import ChunkKind, Message, Part, Reset, Role, chat_of_run, message_id, unseal_parts
from onward.model.events import AttemptInterrupted, RunCancelled
from onward.model.row import MessageState
from onward.store.message_rows import sealed_content
from onward.store.port.messages import MessageQuery
from onward.store.port.retention import Arrival, Kin
from onward.store.port.store import Store
from tests.conformance.drafts import START_US, creation, requested
from tests.conformance.messages import STEP, answered, appended, call_of, growth, heard, only, speaking

TEXT, REASONING, TOOL_CALL, TOOL_RESULT = (
    ChunkKind.TEXT,
    ChunkKind.REASONING,
    ChunkKind.TOOL_CALL,
    ChunkKind.TOOL_RESULT,
)
STOPPED = AttemptInterrupted(step=STEP, attempt=1, why="tests")
LATER_US = START_US + 10**12


async def test_only_what_has_ended_is_sealed_and_only_what_is_sealed_is_tidied(store: Store) -> None:
    draft = await speaking(store)
    await store.messages.flush([growth(draft, "a", "b")], 1)
    assert await store.messages.seal(at_us=START_US, limit=10) == 0
    draft = await appended(store, draft, answered())
    assert await store.messages.tidy(before_us=LATER_US, limit=10) == 0
    assert await store.messages.seal(at_us=START_US, limit=10) == 1
    assert await store.messages.seal(at_us=START_US, limit=10) == 0
    message = await only(store, draft.id)
    content = await store.blobs.find(message.content or "")
    assert unseal_parts(content or b"") == ((TEXT, "ab"),)
    assert await store.messages.tidy(before_us=message.ended_at_us or 0, limit=10) == 0
    assert len(await heard(store, message.chat)) == 4
    assert await store.messages.tidy(before_us=LATER_US, limit=10) == 1
    assert await store.messages.tidy(before_us=LATER_US, limit=10) == 0
    assert await heard(store, message.chat) == []
    assert (await only(store, draft.id)).is_tidied


async def test_a_tidied_message_comes_whole_at_its_last_position(store: Store) -> None:
    draft = await speaking(store)
    chat, message = chat_of_run(draft.id), message_id(draft.id, STEP, "m1", 1)
    chunks = [(REASONING, "hm"), (TEXT, "I "), (TEXT, "look"), (TOOL_CALL, "{1}"), (TOOL_CALL, "{2}")]
    chunks += [(TOOL_RESULT, "one"), (TEXT, "done")]
    await store.messages.flush([growth(draft)._replace(chunks=chunks)], 1)
    draft = await appended(store, draft, answered())
    parts = tuple(
        Part(*part)
        for part in (
            (REASONING, "hm"),
            (TEXT, "I look"),
            (TOOL_CALL, "{1}"),
            (TOOL_CALL, "{2}"),
            (TOOL_RESULT, "one"),
            (TEXT, "done"),
        )
    )
    assert await store.messages.content(message) == parts
    await store.messages.seal(at_us=START_US, limit=10)
    await store.messages.tidy(before_us=LATER_US, limit=10)
    whole = Reset(
        position=9,
        message=message,
        role=Role.ASSISTANT,
        state=MessageState.COMPLETE,
        parts=parts,
    )
    for after in (0, 5, 8):
        assert await store.messages.read(chat, after=after) == [whole]
    assert await store.messages.read(chat, after=9) == []
    assert await store.messages.content(message) == parts


async def test_a_tidied_message_stands_between_the_chunks_of_others(store: Store) -> None:
    first = await speaking(store, chat="both")
    second = await speaking(store, chat="both")
    await store.messages.flush([growth(first, "a", chat="both"), growth(second, "b", chat="both")], 1)
    await appended(store, first, answered())
    await store.messages.seal(at_us=START_US, limit=10)
    await store.messages.tidy(before_us=LATER_US, limit=10)
    await store.messages.flush([growth(second, "c", first=2, chat="both")], 1)
    found = await store.messages.read("both", after=0)
    assert [one.position for one in found] == [2, 4, 5, 6]
    assert isinstance(found[2], Reset)
    assert [one.position for one in await store.messages.read("both", after=2, limit=2)] == [4, 5]


async def test_a_list_has_the_messages_of_a_run_or_a_chat_as_they_began(store: Store) -> None:
    draft = await speaking(store, chat="talk")
    draft = await appended(store, draft, answered(), call_of(draft.id, "m2", chat="talk"))
    other = await speaking(store, chat="talk")
    calls = [(one.run_id, one.call) for one in await store.messages.list(MessageQuery(chat="talk"))]
    assert calls == [(draft.id, "m1"), (draft.id, "m2"), (other.id, "m1")]
    assert [one.call for one in await store.messages.list(MessageQuery(run_id=draft.id))] == ["m1", "m2"]
    (last,) = await store.messages.list(MessageQuery(chat="talk", after_position=3))
    assert last.run_id == other.id
    assert await store.messages.list(MessageQuery(ids=(last.id, "nobody's"))) == [last]


async def test_a_chat_outlives_its_runs_and_keeps_their_text(store: Store) -> None:
    draft = await speaking(store, chat="talk")
    await store.messages.flush([growth(draft, "kept", chat="talk")], 1)
    draft = await appended(store, draft, answered())
    await store.messages.seal(at_us=START_US, limit=10)
    await store.messages.tidy(before_us=LATER_US, limit=10)
    over = await requested(store, draft, STOPPED, RunCancelled(reason="user"))
    kin = Kin(id=over.id, head=over.position.seq, status=over.run.status)
    assert await store.retention.delete([kin]) == [over.id]
    await store.blobs.sweep(LATER_US, 100)
    (whole,) = await store.messages.read("talk", after=0)
    assert isinstance(whole, Reset)
    assert whole.parts == ((TEXT, "kept"),)


async def test_a_run_that_was_given_no_chat_takes_its_own_with_it(store: Store) -> None:
    draft = await speaking(store)
    await store.messages.flush([growth(draft, "gone")], 1)
    draft = await appended(store, draft, answered())
    await store.messages.seal(at_us=START_US, limit=10)
    message = await only(store, draft.id)
    over = await requested(store, draft, STOPPED, RunCancelled(reason="user"))
    kin = Kin(id=over.id, head=over.position.seq, status=over.run.status)
    assert await store.retention.delete([kin]) == [over.id]
    assert await store.messages.list(MessageQuery(run_id=over.id)) == []
    assert await store.messages.positions([chat_of_run(over.id)]) == {}
    await store.blobs.sweep(LATER_US, 100)
    assert await store.blobs.find(message.content or "") is None


async def test_messages_of_another_database_stand_whole_at_the_end_of_their_chats(store: Store) -> None:
    here = await speaking(store, chat="talk")
    name, content = sealed_content([Part(TEXT, "from afar")])
    write, away = creation("away")
    message = Message(
        id="afar",
        chat="talk",
        run_id="away",
        step=STEP,
        call="m1",
        number=1,
        role=Role.ASSISTANT,
        state=MessageState.INTERRUPTED,
        model="gpt",
        begun_at_us=START_US,
        changed_at_us=START_US,
        ended_at_us=START_US,
        first_position=0,
        last_position=0,
        content=name,
        is_tidied=True,
    )
    arrival = Arrival(write, lambda: iter(()), messages=[message])
    with pytest.raises(Refused, match="content"):
        await store.carrying.receive(arrival)
    await store.blobs.put({name: content}, at_us=START_US)
    for _ in range(2):
        await store.carrying.receive(arrival)
    await store.messages.flush([growth(here, "here", chat="talk")], 1)
    _, whole, last = await store.messages.read("talk", after=0)
    assert isinstance(whole, Reset)
    assert (whole.position, whole.parts, last.position) == (2, ((TEXT, "from afar"),), 3)
    assert (await only(store, away.id)).state is MessageState.INTERRUPTED


async def test_what_a_user_says_stands_whole_at_the_end_of_the_chat(store: Store, other: Store) -> None:
    """S2-8: it is there for everybody before anything is done about it, and said again it is there once."""
    draft = await speaking(store, chat="talk")
    await appended(store, draft, answered())
    name, content = sealed_content([Part(TEXT, "Hello?")])
    user = Message(
        id="u1",
        chat="talk",
        run_id="",
        step="",
        call="",
        number=0,
        role=Role.USER,
        state=MessageState.COMPLETE,
        model="",
        begun_at_us=START_US,
        changed_at_us=START_US,
        ended_at_us=START_US,
        first_position=0,
        last_position=0,
        content=name,
        is_tidied=True,
    )
    for _ in range(2):
        await store.messages.say(user, content)
    (heard_last,) = await other.messages.read("talk", after=2)
    parts = (Part(TEXT, "Hello?"),)
    state = MessageState.COMPLETE
    assert heard_last == Reset(position=3, message="u1", role=Role.USER, state=state, parts=parts)
    assert await other.messages.positions(["talk"]) == {"talk": 3}
    assert await store.messages.content("u1") == parts


async def test_a_run_that_is_created_again_does_not_repeat_what_its_chat_kept(store: Store) -> None:
    """A run of the same id has messages of the same ids, and a chat keeps those of a run that was deleted."""
    draft = await speaking(store, run_id="again", chat="talk")
    await store.messages.flush([growth(draft, "kept", chat="talk")], 1)
    draft = await appended(store, draft, answered())
    over = await requested(store, draft, STOPPED, RunCancelled(reason="user"))
    kin = Kin(id=over.id, head=over.position.seq, status=over.run.status)
    assert await store.retention.delete([kin]) == [over.id]
    before = await store.messages.positions(["talk"])
    await speaking(store, run_id="again", chat="talk")
    assert await store.messages.positions(["talk"]) == before
    (message,) = await store.messages.list(MessageQuery(chat="talk"))
    assert message.state is MessageState.COMPLETE
    assert await store.messages.content(message.id) == ((TEXT, "kept"),)


async def test_a_message_that_is_not_there_has_no_content(store: Store) -> None:
    assert await store.messages.content("nowhere") is None

"""Intake: a message and what it asks for are stored together and once, and decided once, in order."""

from __future__ import annotations

from asyncio import gather

import pytest

from onward.model.chat import ChunkKind, Intake, IntakeOutcome, IntakeState, Message, Part, Role, Wish
from onward.model.events import RunCompleted, RunDismissed, RunPaused
from onward.model.row import MessageState
from onward.store.message_rows import sealed_content
from onward.store.port.messages import MessageQuery
from onward.store.port.runs import RunQuery
from onward.store.port.store import Store
from tests.conformance.drafts import START_US, Draft, held
from tests.conformance.messages import answered, appended, growth, only, speaking

PENDING, STARTING, DONE = IntakeState


def message_of(
    id: str, chat: str = "talk", text: str = "Build it.", role: Role = Role.USER
) -> tuple[Message, bytes]:
    """A whole message, with its sealed text."""
    name, content = sealed_content([Part(ChunkKind.TEXT, text)])
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
        begun_at_us=START_US,
        changed_at_us=START_US,
        ended_at_us=START_US,
        first_position=0,
        last_position=0,
        content=name,
        is_tidied=True,
    )
    return message, content


async def said(store: Store, id: str, chat: str = "talk", **asked: str) -> Intake:
    """A user's message, just stored."""
    message, content = message_of(id, chat)
    intake = Intake(
        n=0,
        message=id,
        chat=chat,
        body_hash=asked.get("body_hash", "hash"),
        said_by="ann",
        wish=Wish(asked.get("wish", "")),
        project=asked.get("project", ""),
        pipeline=asked.get("pipeline", ""),
        workdir="",
        state=PENDING,
        behind="",
        outcome=None,
        run_id="",
        reading="",
        notice="",
        at_us=START_US,
        done_at_us=None,
    )
    return await store.intakes.put(message, content, intake)


async def settled(store: Store, id: str, outcome: IntakeOutcome = IntakeOutcome.STARTED) -> bool:
    return await store.intakes.settle(
        id, outcome=outcome, run_id="r", notice="It began.", reading="", at_us=START_US + 5
    )


async def free(store: Store, chat: str | None = None) -> list[str]:
    return [one.message for one in await store.intakes.free(chat=chat)]


async def dismissed(store: Store, draft: Draft) -> None:
    write, paused = draft.then(RunPaused(reason="operator"))
    await store.log.append(write, draft.lease)
    write, _ = paused.then(RunDismissed(by="ann"))
    await store.log.control(draft.id, since=paused.position.seq, append_id="d", decide=lambda *_: write)


async def test_a_message_is_stored_with_what_it_asks_for(store: Store, other: Store) -> None:
    """S0-43: message and request are one write, there for everybody when it returns."""
    first = await said(store, "m1", wish="fresh", project="shop", pipeline="site")
    found = await other.intakes.find("m1")
    assert found == first
    assert (found.wish, found.project, found.pipeline) == (Wish.FRESH, "shop", "site")
    assert (found.state, found.outcome, found.run_id, found.behind) == (PENDING, None, "", "")
    (message,) = await other.messages.list(MessageQuery(chat="talk"))
    assert (message.id, message.role, message.state) == ("m1", Role.USER, MessageState.COMPLETE)
    assert await other.intakes.find("m2") is None


async def test_the_same_message_again_changes_nothing(store: Store, other: Store) -> None:
    first = await said(store, "m1", wish="fresh")
    await settled(store, "m1")
    again = await said(other, "m1", wish="resume", body_hash="another")
    assert (again.n, again.wish, again.body_hash, again.state) == (first.n, Wish.FRESH, "hash", DONE)
    assert await store.messages.positions(["talk"]) == {"talk": 1}


async def test_the_same_message_sent_at_once_by_two_is_stored_once(store: Store, other: Store) -> None:
    answers = await gather(*(said(process, "m1") for process in (store, other, store, other)))
    assert len({one.n for one in answers}) == 1
    assert len(await store.messages.list(MessageQuery(chat="talk"))) == 1


async def test_messages_are_decided_in_the_order_in_which_they_came(store: Store, other: Store) -> None:
    for id in ("m1", "m2", "m3"):
        await said(store, id, "talk" if id != "m2" else "elsewhere")
    assert await free(other) == ["m1", "m2", "m3"]
    assert await free(other, "talk") == ["m1", "m3"]
    assert await settled(other, "m1")
    assert await free(store) == ["m2", "m3"]
    assert [one.message for one in await store.intakes.list("talk", is_open=True, limit=9)] == ["m3"]
    assert [one.message for one in await store.intakes.list("talk", is_open=False, limit=9)] == ["m1", "m3"]
    assert [one.message for one in await store.intakes.list("talk", is_open=False, limit=1)] == ["m3"]


async def test_a_message_is_settled_once(store: Store, other: Store) -> None:
    await said(store, "m1")
    answers = await gather(settled(store, "m1"), settled(other, "m1", IntakeOutcome.RESUMED))
    assert sorted(answers) == [False, True]
    found = await store.intakes.find("m1")
    assert found is not None
    assert (found.state, found.run_id, found.notice, found.done_at_us) == (
        DONE,
        "r",
        "It began.",
        START_US + 5,
    )
    assert not await settled(store, "unknown")


async def test_of_two_that_take_the_same_turn_one_gets_it(store: Store, other: Store) -> None:
    """B0-15: two messages of one chat cannot both start a run that saw no other."""
    await said(store, "m1")
    await said(store, "m2")
    begun = await gather(
        store.intakes.begin("m1", seen="", turn=0, run_id="r1", reading="{}"),
        other.intakes.begin("m2", seen="", turn=0, run_id="r2", reading="{}"),
    )
    assert sorted(begun) == [False, True]
    chat = await store.intakes.find_chat("talk")
    assert chat is not None
    assert chat.turn == 1
    states = [(await store.intakes.find(id)).state for id in ("m1", "m2")]  # type: ignore[union-attr]
    assert sorted(states) == [PENDING, STARTING]


async def test_a_message_begins_one_run(store: Store, other: Store) -> None:
    await said(store, "m1")
    begun = await gather(
        *(
            process.intakes.begin("m1", seen="", turn=0, run_id="r1", reading="{}")
            for process in (store, other)
        )
    )
    assert sorted(begun) == [False, True]
    assert not await store.intakes.begin("m1", seen="", turn=1, run_id="r2", reading="{}")
    found = await store.intakes.find("m1")
    assert found is not None
    assert (found.state, found.run_id, found.reading) == (STARTING, "r1", "{}")
    assert not await store.intakes.note("m1", seen="", behind="r0", reading="")
    assert await free(store) == ["m1"]
    assert await settled(store, "m1")
    assert not await store.intakes.begin("m1", seen="", turn=1, run_id="r2", reading="{}")


@pytest.mark.parametrize("end", ["ended", "dismissed"])
async def test_a_message_waits_until_its_run_has_ended_or_is_dismissed(store: Store, end: str) -> None:
    draft = await held(store)
    await said(store, "m1")
    assert await store.intakes.note("m1", seen="", behind=draft.id, reading="")
    assert await free(store) == []
    if end == "ended":
        write, _ = draft.then(RunCompleted())
        await store.log.append(write, draft.lease)
    else:
        await dismissed(store, draft)
    assert await free(store) == ["m1"]


async def test_a_message_that_waits_for_a_run_that_is_gone_is_free(store: Store) -> None:
    await said(store, "m1")
    await store.intakes.note("m1", seen="", behind="nowhere", reading="")
    assert await free(store) == ["m1"]


async def test_what_is_noted_of_a_message_is_not_lost_to_another_who_looked_before(
    store: Store, other: Store
) -> None:
    await said(store, "m1")
    assert await store.intakes.note("m1", seen="", behind="", reading="one")
    assert not await other.intakes.note("m1", seen="", behind="r", reading="two")
    assert not await other.intakes.begin("m1", seen="", turn=0, run_id="r", reading="two")
    found = await other.intakes.find("m1")
    assert found is not None
    assert (found.behind, found.reading, found.state) == ("", "one", PENDING)
    assert await other.intakes.begin("m1", seen="one", turn=0, run_id="r", reading="two")


async def test_chats_are_listed_newest_first_without_those_of_runs(store: Store) -> None:
    await said(store, "m1", "one", project="shop")
    await said(store, "m2", "one", project="other")
    await speaking(store)
    await said(store, "m3", "two")
    found = await store.intakes.list_chats(before=None, limit=9)
    assert [(chat.id, chat.project, chat.position) for chat in found] == [("two", "", 1), ("one", "shop", 2)]
    assert [chat.id for chat in await store.intakes.list_chats(before=found[0].n, limit=9)] == ["one"]
    assert await store.intakes.find_chat("three") is None


async def test_the_row_of_a_run_has_its_chat_and_whether_it_was_dismissed(store: Store) -> None:
    """S0-18: the runs of a chat are found by the chat."""
    draft, _ = await held(store, chat="talk"), await held(store, chat="elsewhere")
    await dismissed(store, draft)
    (listed,) = await store.runs.list(RunQuery(chat="talk"))
    assert (listed.row.id, listed.row.chat, listed.row.is_dismissed) == (draft.id, "talk", True)
    (elsewhere,) = await store.runs.list(RunQuery(chat="elsewhere"))
    assert not elsewhere.row.is_dismissed


async def test_a_message_says_when_it_last_grew(store: Store) -> None:
    """S2-5: a message has its state and the time of its last change."""
    draft = await speaking(store)
    begun = await only(store, draft.id)
    assert begun.changed_at_us == begun.begun_at_us
    await store.messages.flush([growth(draft, "Once ")], START_US + 77)
    assert (await only(store, draft.id)).changed_at_us == START_US + 77
    await store.messages.flush([growth(draft, "Once ")], START_US + 78)  # nothing new
    assert (await only(store, draft.id)).changed_at_us == START_US + 77
    await appended(store, draft, answered())
    ended = await only(store, draft.id)
    assert ended.changed_at_us == ended.ended_at_us


async def test_onward_itself_can_say_something(store: Store, other: Store) -> None:
    message, content = message_of("s1", role=Role.SYSTEM, text="A limit is reached.")
    for _ in range(2):
        await store.messages.say(message, content)
    (found,) = await other.messages.list(MessageQuery(chat="talk"))
    assert (found.role, found.state) == (Role.SYSTEM, MessageState.COMPLETE)


async def test_what_is_free_is_listed_in_pages(store: Store) -> None:
    made = [await said(store, id, chat) for id, chat in (("one", "a"), ("two", "b"), ("three", "a"))]
    first = await store.intakes.free(limit=2)
    assert [one.message for one in first] == ["one", "two"]
    assert [one.message for one in await store.intakes.free(after=first[-1].n, limit=2)] == ["three"]
    assert [one.message for one in await store.intakes.free(chat="a", after=made[0].n)] == ["three"]
    assert await store.intakes.free(after=made[-1].n) == []


async def test_the_newest_messages_of_a_chat_are_listed_in_their_order(store: Store) -> None:
    for id, chat in (("one", "a"), ("two", "b"), ("three", "a"), ("four", "a")):
        await said(store, id, chat)
    newest = MessageQuery(chat="a", is_newest=True, limit=2)
    assert [one.id for one in await store.messages.list(newest)] == ["three", "four"]


async def test_a_message_that_began_its_run_begins_no_other_for_whoever_knows_that(store: Store) -> None:
    await said(store, "m1")
    assert await store.intakes.begin("m1", seen="", turn=0, run_id="r1", reading="{}")
    assert not await store.intakes.begin("m1", seen="{}", turn=1, run_id="r2", reading="two")
    assert not await store.intakes.note("m1", seen="{}", behind="r2", reading="two")
    found = await store.intakes.find("m1")
    assert found is not None
    assert (found.state, found.run_id, found.reading, found.behind) == (STARTING, "r1", "{}", "")
    await said(store, "m2")
    assert await store.intakes.begin("m2", seen="", turn=1, run_id="r2", reading="{}")

"""Lists of one chat or since a time, and what would be a question for each chat or message asked at once."""

from __future__ import annotations

from onward.model.chat import READING_TAG, IntakeOutcome
from onward.model.events import Managed
from onward.store.port.messages import MessageQuery
from onward.store.port.runs import GateQuery, RunQuery
from onward.store.port.store import Store
from tests.conformance.drafts import START_US, created, held
from tests.conformance.intake import said, settled
from tests.conformance.lists import listed_ids
from tests.conformance.messages import answered, appended, call_of, growth, speaking
from tests.conformance.questions import asked, inbox


async def test_a_list_can_be_of_one_chat_and_of_runs_since_a_time(store: Store) -> None:
    for number in range(4):
        await created(store, f"run-{number}", at_us=START_US + number, chat="talk" if number % 2 else "other")
    assert await listed_ids(store, RunQuery(chat="talk")) == ["run-3", "run-1"]
    assert await listed_ids(store, RunQuery(chat="tal%")) == []
    assert await listed_ids(store, RunQuery(since_us=START_US + 1)) == ["run-3", "run-2", "run-1"]
    assert await listed_ids(store, RunQuery(since_us=START_US + 1, chat="other")) == ["run-2"]
    assert await listed_ids(store, RunQuery(since_us=START_US + 4)) == []
    assert await listed_ids(store, RunQuery(since_us=START_US + 2, text="run")) == ["run-3", "run-2"]


async def test_an_inbox_can_be_of_one_run_or_of_one_chat(store: Store) -> None:
    for run_id, chat in (("a", "talk"), ("b", "talk"), ("c", None)):
        await asked(store, await held(store, run_id, chat=chat))
    assert await inbox(store, GateQuery(run_id="b")) == [("b", "ask#1")]
    assert await inbox(store, GateQuery(chat="talk")) == [("a", "ask#1"), ("b", "ask#1")]
    assert await inbox(store, GateQuery(chat="talk", run_id="c")) == []
    assert await inbox(store, GateQuery(chat="silence")) == []


async def test_the_newest_run_of_each_chat_is_found_at_once(store: Store, other: Store) -> None:
    """Of those that do its work: a step's child does not, and neither does one in which a message is read."""
    by = Managed(run="first", step="manage#1")
    await created(store, "first", at_us=START_US, chat="talk")
    await held(store, "second", at_us=START_US + 1, chat="talk")
    await created(store, "child", at_us=START_US + 2, chat="talk", managed_by=by)
    await created(store, "reading", at_us=START_US + 3, chat="talk", tags=(READING_TAG,))
    await created(store, "only", at_us=START_US, chat='it\'s "odd"')
    await created(store, "alone", at_us=START_US)
    found = await other.runs.of_chats(["talk", 'it\'s "odd"', "silence", "talk"])
    assert {chat: one.row.id for chat, one in found.items()} == {"talk": "second", 'it\'s "odd"': "only"}
    assert [found["talk"]] == await other.runs.find("second")
    assert await store.runs.of_chats([]) == {}


async def test_what_waits_in_each_chat_is_counted_at_once(store: Store, other: Store) -> None:
    for number, chat in enumerate(("talk", "talk", "other", "done")):
        await said(store, f"m{number}", chat)
    await settled(store, "m3", IntakeOutcome.ANSWERED)
    assert await other.intakes.waiting(["talk", "other", "done", "silence"]) == {"talk": 2, "other": 1}
    assert await store.intakes.waiting([]) == {}


async def test_what_many_messages_say_is_read_at_once(store: Store, other: Store) -> None:
    """Streaming, sealed and tidied ones alike."""
    ids = []
    for number, name in enumerate(("streaming", "sealed", "tidied")):
        draft = await speaking(store, run_id=name, chat="talk")
        await store.messages.flush([growth(draft, f"text {name}", chat="talk")], number)
        ids.append((await store.messages.list(MessageQuery(run_id=name)))[0].id)
        if name != "streaming":
            await appended(store, draft, answered())
            await store.messages.seal(at_us=1, limit=9)
        if name == "tidied":
            await store.messages.tidy(before_us=2**60, limit=1)
    found = await other.messages.contents([*ids, "nothing"])
    assert found == {id: await store.messages.content(id) for id in ids}
    assert ["".join(part.text for part in found[id]) for id in ids] == [
        "text streaming",
        "text sealed",
        "text tidied",
    ]
    assert await store.messages.contents([]) == {}


async def test_the_messages_of_a_run_are_listed_in_pages(store: Store) -> None:
    draft = await speaking(store, run_id="run", chat="talk")
    await speaking(store, run_id="neighbour", chat="talk")
    for number in range(2, 6):
        draft = await appended(
            store, draft, answered(f"m{number - 1}"), call_of("run", f"m{number}", chat="talk")
        )
    found, after = list[str](), 0
    while page := await store.messages.list(MessageQuery(run_id="run", after_position=after, limit=2)):
        found += [one.call for one in page]
        after = page[-1].first_position
    assert found == ["m1", "m2", "m3", "m4", "m5"]

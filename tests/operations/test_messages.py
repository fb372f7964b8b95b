"""What is said in chats, as it is asked for: whole, in pieces, and while it grows."""

from __future__ import annotations

import asyncio

import pytest

from onward.errors import ChatNotFound, InvalidInput
from onward.model.chat import chat_of_run
from onward.model.events import AttemptInterrupted, RunCancelled
from onward.operations.local.chats import LocalMessages
from onward.operations.local.operations import LocalOperations
from onward.operations.requests import ListMessages, ReadMessages, SendMessage
from onward.redact.redactor import Redactor
from onward.replies.chats import MessagePiece, MessageShown
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.drafts import Draft, requested
from tests.conformance.messages import STEP, answered, appended, growth, speaking
from tests.operations.test_replies import check
from tests.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def messages(store: Store) -> LocalMessages:
    return LocalMessages(store, ManualClock())


async def pieces(messages: LocalMessages, request: ReadMessages) -> list[MessagePiece]:
    return [piece async for piece in messages.read_messages(request)]


async def ended(store: Store, draft: Draft) -> None:
    stopped = AttemptInterrupted(step=STEP, attempt=1, why="tests")
    await requested(store, draft, stopped, RunCancelled(reason="user"))


async def test_a_run_is_read_in_pieces_and_whole(store: Store, messages: LocalMessages) -> None:
    draft = await speaking(store, run_id="spoken")
    await store.messages.flush([growth(draft, "Once ", "upon")], 1)
    await appended(store, draft, answered())
    found = await pieces(messages, ReadMessages(of="spok"))
    for piece in found:
        check(piece, MessagePiece)
    assert [(piece["position"], piece["kind"], piece["text"], piece["state"]) for piece in found] == [
        (1, "start", "", None),
        (2, "text", "Once ", None),
        (3, "text", "upon", None),
        (4, "end", "", "complete"),
    ]
    (whole,) = await messages.list_messages(ListMessages(of="spoken"))
    check(whole, MessageShown)
    assert (whole["text"], whole["state"], whole["model"]) == ("Once upon", "complete", "gpt")
    for place in (3, 4):
        again = await pieces(messages, ReadMessages(of="spoken", after=place))
        assert [piece["position"] for piece in again] == list(range(place + 1, 5))


async def test_a_tidied_message_is_a_reset_with_all_of_its_parts(
    store: Store, messages: LocalMessages
) -> None:
    draft = await speaking(store)
    await store.messages.flush([growth(draft, "Once ", "upon")], 1)
    await appended(store, draft, answered())
    await store.messages.seal(at_us=1, limit=10)
    await store.messages.tidy(before_us=2**60, limit=10)
    (piece,) = await pieces(messages, ReadMessages(of=chat_of_run(draft.id), after=2))
    check(piece, MessagePiece)
    assert (piece["kind"], piece["text"], piece["state"]) == ("reset", "Once upon", "complete")
    assert piece["parts"] == [{"kind": "text", "text": "Once upon"}]


async def test_of_a_chat_everybody_is_heard_and_of_a_name_that_is_none_nobody(
    store: Store, messages: LocalMessages
) -> None:
    first, second = [await speaking(store, chat="talk") for _ in range(2)]
    found = await pieces(messages, ReadMessages(of="talk"))
    assert [piece["run"] for piece in found] == [first.id, second.id]
    assert len(await messages.list_messages(ListMessages(of="talk"))) == 2
    with pytest.raises(ChatNotFound, match="there is no run 'silence', and no message in a chat"):
        await messages.list_messages(ListMessages(of="silence"))
    with pytest.raises(InvalidInput, match="after is -1"):
        ReadMessages(of="talk", after=-1)


async def test_a_follower_gets_what_is_said_until_the_run_stops(
    store: Store, messages: LocalMessages
) -> None:
    """S2-20: also what is said after it has come."""
    draft = await speaking(store)
    heard: list[MessagePiece] = []

    async def follow() -> None:
        async for piece in messages.read_messages(ReadMessages(of=draft.id, follow=True)):
            heard.append(piece)

    async def until(count: int) -> None:
        while len(heard) < count:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)

    following = asyncio.create_task(follow())
    await until(1)
    for number in range(1, 4):
        await store.messages.flush([growth(draft, f"{number}", first=number)], 1)
        await until(number + 1)
        assert heard[-1]["text"] == f"{number}"
    await ended(store, await appended(store, draft, answered()))
    await following
    assert [piece["position"] for piece in heard] == [1, 2, 3, 4, 5]
    assert heard[-1]["state"] == "complete"


async def test_what_a_user_says_is_durable_when_the_reply_comes(world: World) -> None:
    """S2-8: stored at once, with the role of a user, and without secrets."""
    secret = Redactor()
    secret.add("TOKEN", "sesame-sesame")
    process = await world.process(redactor=secret)
    asked = SendMessage(chat="talk", text="Open with sesame-sesame.", pipeline="nowhere")
    sent = await LocalOperations(process.engine, process.clock).chats.send_message(asked)
    other = await world.process()
    found = await LocalOperations(other.engine, other.clock).messages.list_messages(ListMessages(of="talk"))
    shown, why_not = found
    assert (shown["id"], shown["role"], shown["state"]) == (sent["message"], "user", "complete")
    assert shown["text"] == "Open with [redacted TOKEN]."
    assert (why_not["role"], why_not["text"]) == ("system", sent["notice"])


@pytest.mark.parametrize(
    ("chat", "text", "why"),
    [("run/x", "Hello.", "is the chat of a run"), ("talk", "", "a message has 1 to"), ("", "Hello.", "chat")],
)
async def test_what_cannot_be_said_is_refused_in_one_sentence(
    memory: World, chat: str, text: str, why: str
) -> None:
    process = await memory.process()
    with pytest.raises(InvalidInput, match=why):
        await process.engine.say(chat, text)
    assert await process.store.messages.positions([chat]) == {}

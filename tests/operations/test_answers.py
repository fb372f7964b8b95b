"""Callers with keys: each has a space of its own, and hears beside the reply whether it is a repeated one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from onward.errors import InvalidInput, Refused
from onward.model.ids import OWN_KEYS, caller_key
from onward.operations.answers import answering
from onward.operations.protocol import Operations
from onward.operations.requests import (
    AnswerGate,
    CancelRun,
    DismissRun,
    ForkRun,
    GetRun,
    PauseRun,
    ResumeRun,
    SendMessage,
    SteerRun,
    SubmitRun,
)
from tests.engine.test_resume_doors import crashed
from tests.operations.test_requests import of
from tests.test_pause import GATED
from tests.world import World, line

Ask = Callable[[Operations, str], Awaitable[object]]
DECISIONS: dict[str, Ask] = {
    "steer": lambda at, key: at.decide.steer_run(SteerRun(run="run", text="be brief", key=key)),
    "answer": lambda at, key: at.decide.answer_gate(AnswerGate(run="run", choice="Y", key=key)),
    "pause": lambda at, key: at.decide.pause_run(PauseRun(run="run", key=key)),
    "cancel": lambda at, key: at.decide.cancel_run(CancelRun(run="run", key=key)),
    "fork": lambda at, key: at.start.fork_run(ForkRun(run="run", checkpoint=1, key=key)),
    "submit": lambda at, key: at.start.submit_run(SubmitRun(source=line("a"), key=key)),
    "send": lambda at, key: at.chats.send_message(SendMessage(chat="c", text="hello", key=key)),
}


async def is_repeat(asked: Awaitable[object]) -> bool:
    with answering() as answer:
        await asked
    return answer.is_repeat


@pytest.mark.parametrize("name", DECISIONS)
async def test_a_caller_hears_whether_an_answer_was_a_repeat(world: World, name: str) -> None:
    process = await world.process()
    await process.start(GATED)
    at, ask = of(process), DECISIONS[name]
    assert not await is_repeat(ask(at, "k1"))
    process.clock.advance(1)
    assert await is_repeat(ask(at, "k1"))
    assert not await is_repeat(at.look.get_run(GetRun(run="run")))
    await ask(at, "k1")  # and whoever does not ask is answered all the same


async def test_so_does_one_who_decides_about_a_stopped_run(world: World) -> None:
    await crashed(world, line("a", "b"))
    at = of(await world.process(handlers={}))
    await at.decide.pause_run(PauseRun(run="run"))
    dismiss, resume = DismissRun(run="run", key="k1"), ResumeRun(run="run", key="k2")
    assert [await is_repeat(at.decide.dismiss_run(dismiss)) for _ in range(2)] == [False, True]
    assert [await is_repeat(at.decide.resume_run(resume)) for _ in range(2)] == [False, True]


async def test_answers_to_requests_at_once_are_told_apart(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    at, ask = of(process), DECISIONS["steer"]
    await ask(at, "k1")
    assert await asyncio.gather(*(is_repeat(ask(at, key)) for key in ("k1", "k2", "k1"))) == [
        True,
        False,
        True,
    ]


async def test_the_same_key_of_two_callers_is_two_requests(world: World) -> None:
    """S20: what one caller asked is no answer to another."""
    process = await world.process()
    await process.start(GATED)
    at = of(process)
    for principal, text in (("t1", "be brief"), ("t2", "be polite")):
        request = SteerRun(run="run", text=text, by=f"token:{principal}", key=caller_key(principal, "k"))
        assert not await is_repeat(at.decide.steer_run(request))
        assert await is_repeat(at.decide.steer_run(request))
    assert (await process.load()).run.steering == ("be brief", "be polite")
    stolen = SteerRun(run="run", text="mine", by="token:t2", key=caller_key("t1", "k"))
    with pytest.raises(Refused, match="was used for another request"):
        await at.decide.steer_run(stolen)


def test_keys_of_callers_never_meet() -> None:
    """S14. A key may have slashes; the id of a token has none, so it ends at the first."""
    made = {
        caller_key(id, key) for id in ("a", "a:b", "a-b") for key in ("k", "a/k", "/k", "b/k", "token:a/k")
    }
    assert len(made) == 15
    assert not any(key.startswith(OWN_KEYS) for key in made)
    for principal in ("", "a/b", "A", "a b", "é", "a\n", "x" * 65):
        with pytest.raises(InvalidInput, match="is not the id of a token"):
            caller_key(principal, "k")
    for key in ("", "é", "\n", "\x7f", "x" * 201):
        with pytest.raises(InvalidInput, match="1 to 200 printable"):
            caller_key("a", key)


@pytest.mark.parametrize(
    "key", ["message/m1/resume", "child of x", "restart of run", "arrived 00", "attempt 1 of x"]
)
async def test_no_caller_can_use_the_name_of_a_request_of_ours(world: World, key: str) -> None:
    process = await world.process()
    await process.start(GATED)
    for name in ("pause", "submit", "fork"):
        with pytest.raises(InvalidInput, match="with a prefix that Onward reserves for its own requests"):
            await DECISIONS[name](of(process), key)

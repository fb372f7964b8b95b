"""Scripted handlers: the nth execution takes the nth act, and every call is in the ledger."""

from __future__ import annotations

import asyncio

import pytest

from onward.model.result import Result
from tests.conformance.handlers import Doorway, Ledger, Scripted
from tests.engine.test_attempt import step_context
from tests.world import World, line


async def test_the_nth_execution_takes_the_nth_act_and_the_last_repeats(world: World) -> None:
    process = await world.process({"a": [Result.retry("1"), ValueError("2"), Result.success(third=True)]})
    run = await process.start(line("a", a="max_retries=5"))
    assert run.context["third"] is True
    assert world.ledger.attempts("a") == [1, 2, 3]


async def test_a_node_without_a_script_succeeds() -> None:
    assert await Scripted().run(step_context()) == Result.success()


async def test_a_call_is_in_the_ledger_even_if_it_fails() -> None:
    ledger = Ledger()
    with pytest.raises(ValueError, match="no"):
        await Scripted({"a": [ValueError("no")]}, ledger).run(step_context())
    (call,) = ledger.calls
    assert (call.run_id, call.step, call.node, call.attempt) == ("run", "a#1", "a", 1)
    assert (call.idempotency_key, ledger.steps) == ("run/a#1", ["a#1"])


async def test_a_doorway_holds_until_it_is_opened_and_tells_if_it_was_left() -> None:
    door = Doorway(Result.success(passed=True))
    first = asyncio.create_task(door(step_context()))
    await door.entered()
    assert not first.done()
    door.open()
    assert await first == Result.success(passed=True)
    assert not door.was_cancelled
    closed = Doorway()
    second = asyncio.create_task(closed(step_context()))
    await closed.entered()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert closed.was_cancelled

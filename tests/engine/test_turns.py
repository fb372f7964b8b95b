"""Writers of a run take turns: one at a time, in the order in which they came, whoever gives up."""

from __future__ import annotations

import asyncio

import pytest

from onward.engine.appender import Turns


async def take(turns: Turns, name: str, seen: list[str], let_go: asyncio.Event) -> None:
    if turns.is_taken:
        await turns.wait()
    turns.is_taken = True
    try:
        seen.append(name)
        await let_go.wait()
    finally:
        turns.end()


async def until_waiting() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_writers_come_one_at_a_time_in_their_order() -> None:
    turns, seen, let_go = Turns(), list[str](), asyncio.Event()
    writers = [asyncio.create_task(take(turns, name, seen, let_go)) for name in "abc"]
    await until_waiting()
    assert seen == ["a"]
    let_go.set()
    await asyncio.gather(*writers)
    assert seen == ["a", "b", "c"]
    assert not turns.is_taken


async def test_a_writer_that_gives_up_while_it_waits_is_passed_over() -> None:
    turns, seen, let_go = Turns(), list[str](), asyncio.Event()
    first, second, third = (asyncio.create_task(take(turns, name, seen, let_go)) for name in "abc")
    await until_waiting()
    second.cancel()
    await until_waiting()
    let_go.set()
    await asyncio.gather(first, third)
    assert seen == ["a", "c"]
    assert not turns.is_taken


async def test_a_writer_that_is_cancelled_as_its_turn_comes_passes_it_on() -> None:
    turns, seen, let_go = Turns(), list[str](), asyncio.Event()
    let_go.set()
    turns.is_taken = True
    cancelled, next_one = (asyncio.create_task(take(turns, name, seen, let_go)) for name in "ab")
    await until_waiting()
    turns.end()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await next_one
    assert seen == ["b"]
    assert not turns.is_taken


async def test_nobody_slips_in_before_the_one_whose_turn_it_is() -> None:
    turns, seen, let_go = Turns(), list[str](), asyncio.Event()
    let_go.set()
    turns.is_taken = True
    waiting = asyncio.create_task(take(turns, "waiting", seen, let_go))
    await until_waiting()
    turns.end()
    await take(turns, "late", seen, let_go)
    await waiting
    assert seen == ["waiting", "late"]

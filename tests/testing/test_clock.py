"""The manual clock: it moves when told, or when everybody waits, and never by itself."""

from __future__ import annotations

import asyncio

from onward.testing.clock import NOVEMBER_2023_US, ManualClock, SeededDice, SeededIds


async def wait(clock: ManualClock, seconds: float, order: list[float]) -> None:
    await clock.wait_s(seconds, asyncio.Event())
    order.append(seconds)


async def test_waits_end_in_the_order_of_their_deadlines_and_cost_no_time() -> None:
    clock, order = ManualClock(), list[float]()
    await asyncio.gather(*(wait(clock, seconds, order) for seconds in (3600.0, 0.5, 60.0)))
    assert order == [0.5, 60.0, 3600.0]
    assert clock.awake_s() == 3600.0
    assert clock.now_us() == NOVEMBER_2023_US + 3_600_000_000


async def test_somebody_who_is_woken_moves_no_clock() -> None:
    clock, woken = ManualClock(), asyncio.Event()
    woken.set()
    await clock.wait_s(60, woken)
    assert clock.awake_s() == 0


async def test_a_clock_that_does_not_jump_waits_for_the_hand_that_moves_it() -> None:
    clock, order = ManualClock(autojump=False), list[float]()
    waiting = asyncio.create_task(wait(clock, 10, order))
    await clock.until_waiting()
    clock.advance(9)
    await clock.until_waiting()
    assert (order, clock.waiting) == ([], 1)
    clock.advance(1)
    assert clock.waiting == 0, "its time has come, though it does not know yet"
    await waiting
    assert order == [10]


async def test_a_clock_that_does_not_jump_can_be_left_by_being_woken() -> None:
    clock, woken = ManualClock(autojump=False), asyncio.Event()
    waiting = asyncio.create_task(clock.wait_s(10, woken))
    await clock.until_waiting()
    woken.set()
    await waiting
    assert (clock.awake_s(), clock.waiting) == (0, 0)


async def test_a_wait_that_is_cancelled_is_forgotten() -> None:
    clock = ManualClock(autojump=False)
    waiting = asyncio.create_task(clock.wait_s(10, asyncio.Event()))
    await clock.until_waiting()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert clock.waiting == 0


def test_setting_the_wall_clock_leaves_the_awake_clock_alone() -> None:
    clock = ManualClock(now_us=0)
    clock.advance(5)
    clock.set_wall_clock(-100)
    assert (clock.now_us(), clock.awake_s()) == (-95_000_000, 5)


def test_ids_and_dice_are_the_same_from_the_same_seed() -> None:
    ids, same, other = SeededIds(7), SeededIds(7), SeededIds(8)
    drawn = [(ids.run_id(0), ids.unique()) for _ in range(20)]
    assert [(same.run_id(0), same.unique()) for _ in range(20)] == drawn
    assert not {other.unique() for _ in range(20)} & {unique for _, unique in drawn}
    assert len(set(drawn)) == 20
    dice, again = SeededDice(7), SeededDice(7)
    rolls = [dice.roll() for _ in range(100)]
    assert [again.roll() for _ in range(100)] == rolls
    assert all(0 <= roll < 1 for roll in rolls)


def test_run_ids_sort_by_time() -> None:
    ids = SeededIds(1)
    made = [ids.run_id(now_ms * 1000) for now_ms in range(0, 5_000, 100)]
    assert made == sorted(made)

"""Random flows come to what a model says, however often their processes die and wherever they are forked.

A program is drawn and handed to a flow that plays it; a model that knows the program and not the engine says
what it gives. A ledger outside says what was executed.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, note
from hypothesis import strategies as st

from onward.errors import RunNotFound, StepFailed
from onward.flows.branches import each, gather
from onward.flows.define import flow, step
from onward.flows.values import now, uuid
from onward.flows.waits import ask, sleep
from onward.model.call import CallStatus
from tests.chance import examples
from tests.conformance.faults import Died, Fault
from tests.flows.living import called, serving
from tests.flows.ways import Executed, ended, forked, judged, to_its_end
from tests.world import World, in_memory

Program = list[Any]
executed = Executed()
SETTLED: Mapping[str, str] = defaultdict(lambda: "paid")
"""What a person says that any payment in doubt answered."""


@step
async def page(number: int) -> int:
    executed.note("page", number)
    for _ in range(number % 4):
        await asyncio.sleep(0)
    return number


@step
async def stamp(number: int, mark: str) -> str:
    executed.note("stamp", number, mark)
    return "stamped"


@step
async def broken(number: int) -> int:
    executed.note("broken", number)
    raise ValueError("broken")


@step(once=True)
async def pay(number: int) -> str:
    executed.note("pay", number)
    await asyncio.sleep(0)
    return "paid"


async def play(program: Program) -> Program:
    return [await perform(*one) for one in program]


@flow
async def part(program: Program) -> Program:
    return await play(program)


@flow
async def whole(program: Program) -> Program:
    return await play(program)


async def perform(kind: str, *of: Any) -> Any:
    match kind:
        case "page":
            return await page(of[0])
        case "stamp":
            return await stamp(of[0], f"{now()} {uuid()}")
        case "pay":
            return await pay(of[0])
        case "broken":
            try:
                return await broken(of[0])
            except StepFailed:
                return await page(of[0])
        case "sleep":
            await sleep(of[0])
            return "slept"
        case "ask":
            return (await ask(f"Question {of[0]}?")).choice
        case "part":
            return await part(of[0])
        case "gather":
            return list(await gather(*map(play, of[0])))
        case _:
            return await each(play, of[0], limit=of[1])


def expected(program: Program) -> Program:
    """What a program gives, by a model that knows nothing of steps."""
    return [_expected(*one) for one in program]


def _expected(kind: str, *of: Any) -> Any:
    match kind:
        case "page" | "broken":
            return of[0]
        case "part":
            return expected(of[0])
        case "gather" | "each":
            return [expected(one) for one in of[0]]
    return {"stamp": "stamped", "pay": "paid", "sleep": "slept", "ask": "yes"}[kind]


def numbered(program: Program) -> Program:
    """The program, in which no two steps have the same number."""
    numbers = count(1)

    def one(kind: str, *of: Any) -> Program:
        match kind:
            case "part":
                return [kind, list(_all(of[0]))]
            case "gather" | "each":
                return [kind, [list(_all(branch)) for branch in of[0]], *of[1:]]
            case "sleep":
                return [kind, *of]
        return [kind, next(numbers)]

    def _all(program: Program) -> Program:
        return [one(*each) for each in program]

    return _all(program)


LEAVES = st.one_of(
    st.sampled_from(["page", "page", "stamp", "pay", "broken", "ask"]).map(lambda kind: [kind]),
    st.sampled_from([1, 3_600]).map(lambda seconds: ["sleep", seconds]),
)
PROGRAMS = st.recursive(
    st.lists(LEAVES, min_size=1, max_size=3),
    lambda inner: st.lists(
        st.one_of(
            LEAVES,
            inner.map(lambda one: ["part", one]),
            st.lists(inner, min_size=1, max_size=3).map(lambda several: ["gather", several]),
            st.tuples(st.lists(inner, max_size=4), st.integers(1, 3)).map(lambda one: ["each", *one]),
        ),
        min_size=1,
        max_size=3,
    ),
    max_leaves=12,
).map(numbered)
DEATHS = st.lists(
    st.tuples(st.sampled_from([Fault.DIE_BEFORE, Fault.DIE_AFTER]), st.integers(1, 15)), max_size=5
)
MANY = numbered(
    [
        ["gather", [[["page"], ["pay"]], [["ask"], ["broken"]], [["sleep", 3_600], ["stamp"]]]],
        ["each", [[["part", [["stamp"], ["pay"]]]], [["broken"]], [["gather", [[["pay"]], [["ask"]]]]]], 2],
        ["page"],
    ]
)


async def played(world: World, program: Program, deaths: list[tuple[Fault, int]], fork_at: float) -> None:
    """Bring a run to its end through these deaths, then fork it."""
    executed.done.clear()
    bound, kept = whole.bind(program), Counter[str]()
    for fault, within in deaths:
        dying = await serving(world, whole)
        dying.store.fail(fault, within=within)
        try:
            await to_its_end(dying, bound, "run", SETTLED)
        except Died:
            await dying.die()
        looking = await serving(world, whole)
        try:
            answered = await ended(looking, "run", CallStatus.OK)
        except RunNotFound:
            continue
        kept.update({one: executed.done[one] for one in answered if one not in kept})
    process = await serving(world, whole)
    run = await to_its_end(process, bound, "run", SETTLED)
    await judged(process, run, expected(program))
    assert {one: executed.done[one] for one in kept} == kept, "what was answered ran again"
    assert all(times == 1 for one, times in executed.done.items() if one.startswith("pay")), "paid twice"
    keys = list(dict.fromkeys(await called(process)))
    if keys:
        key = keys[int(fork_at * len(keys))]
        note(f"forked before {key}")
        await forked(process, bound, executed, "run", key, "fork", expected(program), (), SETTLED)


@pytest.mark.slow
@examples(300)
@given(program=PROGRAMS, deaths=DEATHS, fork_at=st.floats(0, 1, exclude_max=True))
@example(
    program=MANY, deaths=[(Fault.DIE_AFTER, 9), (Fault.DIE_BEFORE, 6), (Fault.DIE_AFTER, 3)], fork_at=0.5
)
async def test_random_flows_repeat_nothing_through_deaths_and_in_forks(
    program: Program, deaths: list[tuple[Fault, int]], fork_at: float
) -> None:
    async with in_memory() as world:
        await played(world, program, deaths, fork_at)

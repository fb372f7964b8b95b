"""The rules of flows, each live, resumed after a death at every write, and in forks before every call.

Refusals are in `test_refusals.py`, what a flow waits for in `test_waits.py`, agents in `test_agents.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

import pytest

from onward.engine.control.requests import ForkRequest
from onward.engine.stop import StopSwitch
from onward.errors import OnwardError, Refused, StepFailed
from onward.flows.branches import each, gather
from onward.flows.define import flow, step
from onward.flows.handler import FlowHandler
from onward.flows.values import current, now, patch, uuid
from onward.flows.waits import ask, sleep
from onward.model.call import CallStatus
from onward.model.run import Run, RunStatus
from tests.chance import places
from tests.conformance.faults import Died, Fault
from tests.flows.living import begin, called, live, result, serving
from tests.flows.ways import FORKED, LIVE, RESUMED, STRIDE, WAYS, Executed, ended, in_way
from tests.world import Process, World

executed = Executed()
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def _nothing_executed() -> None:
    executed.done.clear()


@step
async def page(name: str) -> str:
    executed.note("page", name)
    await asyncio.sleep(0)
    return name.upper()


@step
async def broken(name: str) -> str:
    executed.note("broken", name)
    raise ValueError(name)


@step(once=True)
async def pay(cents: int) -> int:
    executed.note("pay", cents)
    return cents


@step
async def shaky(name: str) -> str:
    if executed.note("shaky", name) < 2:
        raise ValueError("not yet")
    return "at last"


@flow
async def audit(name: str) -> str:
    return await page(f"{name}1") + await page(f"{name}2")


@flow
async def keyed() -> list[str]:
    found = [await page("first"), await audit("audit"), await page("second")]
    found += await gather(page("left"), audit("right"))
    found += await each(audit, ["a", "b"], limit=2)
    return [*found, await audit("again")]


KEYS = (
    *("page", "audit/page", "audit/page#2", "page#2", "gather.0/page"),
    *("gather.1/audit/page", "gather.1/audit/page#2", "each.0/audit/page", "each.0/audit/page#2"),
    *("each.1/audit/page", "each.1/audit/page#2", "audit#2/page", "audit#2/page#2"),
)
KEYED = [*("FIRST", "AUDIT1AUDIT2", "SECOND", "LEFT", "RIGHT1RIGHT2", "A1A2", "B1B2", "AGAIN1AGAIN2")]


@every_way
@pytest.mark.slow
async def test_a_key_says_where_a_call_is_and_never_when_it_was_made(world: World, way: str) -> None:
    """F1"""
    await in_way(way, world, keyed.bind(), executed, gives=KEYED, keys=KEYS)


@flow
async def failing() -> list[str]:
    found: list[str] = []
    try:
        await gather(page("beside"), broken("first"), broken("second"))
    except StepFailed as error:
        found.append(f"{error.key} {error.type} {error.text}")
    tried = await each(broken, ["x", "y"], return_exceptions=True)
    found += [f"{one.key} {one.text}" for one in tried if isinstance(one, StepFailed)]
    return [*found, await page("after")]


FAILED = ["gather.1/broken ValueError first", "each.0/broken x", "each.1/broken y"]


@every_way
@pytest.mark.slow
async def test_branches_are_waited_for_and_the_first_failure_by_position_is_raised(
    world: World, way: str
) -> None:
    """F6, F7: and what the flow made of it stays what happened."""
    await in_way(way, world, failing.bind(), executed, gives=[*FAILED, "AFTER"])
    if way == LIVE:
        expected = ("page", "beside"), ("broken", "first"), ("broken", "second"), ("broken", "x")
        assert {f'{name}["{said}"]' for name, said in expected} <= executed.done.keys()


@every_way
async def test_the_failure_that_ended_a_flow_is_tried_again_alone(world: World, way: str) -> None:
    """F7"""

    @flow
    async def ending() -> list[str]:
        found = await gather(page("before"), page("beside"))
        return [*found, *(await gather(shaky("one")))]

    process = await serving(world, ending)
    run = await begin(process, ending.bind())
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    if way == RESUMED:
        run = await (await serving(world, ending)).resume()
    if way == FORKED:
        await process.engine.fork("run", ForkRequest(from_step="gather#2.0/shaky", new_id="fork"))
        run = await process.resume("fork", original=True)
    if way != LIVE:
        assert result(run) == ["BEFORE", "BESIDE", "at last"]
        assert executed.done == {'page["before"]': 1, 'page["beside"]': 1, 'shaky["one"]': 2}


class Tone(Enum):
    DRY = "dry"


@dataclass
class Everything:
    price: Decimal
    at: datetime
    id: UUID
    place: Path
    tone: Tone
    parts: dict[int, set[str]]
    raw: bytes


WHOLE = Everything(
    *(Decimal("1.10"), datetime(2026, 11, 18, tzinfo=UTC), UUID(int=7), Path("a/b"), Tone.DRY),
    *({1: {"x"}, 2: set()}, b"\x00\xff"),
)


@step
async def made(name: str) -> Everything:
    executed.note("made", name)
    return WHOLE


@step
async def raw(name: str) -> bytes:
    executed.note("raw", name)
    return b"\xff" * 5_000


@step
async def untyped(name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 - that is the case
    executed.note("untyped", name)
    return (name, {Tone.DRY})


@flow
async def typed() -> list[object]:
    first, second = await made("first"), await gather(made("second"), raw("third"))
    return [first == WHOLE, second == (WHOLE, b"\xff" * 5_000), await untyped("fourth")]


@every_way
async def test_values_come_back_as_what_is_declared_and_as_json_without(world: World, way: str) -> None:
    """F8"""
    await in_way(way, world, typed.bind(), executed, gives=[True, True, ["fourth", ["dry"]]])


@flow
async def paying() -> list[object]:
    found = [await page("before"), await pay(1)]
    found += await gather(pay(2), page("beside"), pay(3))
    return [*found, await page("after")]


@every_way
@pytest.mark.slow
async def test_what_must_not_be_repeated_never_is(world: World, way: str) -> None:
    """F9: a person answers for what was cut off; a fork before a payment pays in its own name."""
    settled = {"pay": 1, "gather.0/pay": 2, "gather.2/pay": 3}
    gives = ["BEFORE", 1, 2, "BESIDE", 3, "AFTER"]
    await in_way(way, world, paying.bind(), executed, gives=gives, settled=settled)


@flow
async def drawing() -> list[str]:
    drawn = [str(uuid()), str(current().random.random()), now().isoformat()]
    await page(drawn[0])
    found = await gather(audit(str(uuid())), page(str(uuid())))
    await sleep(1)
    await page(f"{now().isoformat()} {drawn[1]}")
    await page(f"{drawn[2]} {found[0]}")
    return sorted(["fixed"])


@every_way
@pytest.mark.slow
async def test_time_and_chance_stay_what_they_were(world: World, way: str) -> None:
    """F10: they are arguments of steps here, which are compared whenever the flow runs."""
    await in_way(way, world, drawing.bind(), executed, gives=["fixed"])


@pytest.mark.parametrize("place", ["a step", "a gather", "a flow"])
@every_way
async def test_a_patch_is_true_where_the_history_was_made_with_it(world: World, way: str, place: str) -> None:
    """F11: an old run keeps what it did; what a fork does anew is new."""
    is_new = [False]

    @flow
    async def patched() -> list[str]:
        found = [await page("first")]
        if is_new[0] and patch("more"):
            found.append(await page("new"))
        match place:
            case "a step":
                found.append(await page("old"))
            case "a gather":
                found += await gather(page("old"))
            case _:
                found.append(await audit("old"))
        return [*found, await shaky("one")]

    old = {"a flow": "OLD1OLD2"}.get(place, "OLD")
    process = await serving(world, patched)
    is_new[0] = way == LIVE
    await begin(process, patched.bind())
    is_new[0] = True
    new = ["FIRST", "NEW", old, "at last"]
    if way == LIVE:
        assert result(await process.resume()) == new
        return
    assert result(await process.resume()) == ["FIRST", old, "at last"]
    if way == FORKED:
        first = next(key for key in await called(process) if key not in ("page",))
        for number, (key, gives) in enumerate(
            [(first, new), ("shaky", ["FIRST", old, "at last"]), ("page", new)]
        ):
            await process.engine.fork("run", ForkRequest(from_step=key, new_id=f"fork-{number}"))
            run = await live(process, patched.bind(), f"fork-{number}")
            assert result(run) == gives, key
            assert await process.is_sound(run.id)


@every_way
async def test_a_version_leaves_old_runs_to_the_code_that_made_them(world: World, way: str) -> None:
    """F12"""

    @flow(name="versioned", version="1")
    async def first() -> list[str]:
        return [await page("first"), await shaky("one")]

    @flow(name="versioned", version="2")
    async def second() -> list[str]:
        return [await page("second")]

    old, new = await serving(world, first), await serving(world, second)
    if way == LIVE:
        assert result(await begin(new, second.bind())) == ["SECOND"]
        return
    run_id = "run"
    await begin(old, first.bind())
    if way == FORKED:
        run_id = "fork"
        with pytest.raises(OnwardError, match=r"flow:versioned@1"):
            await new.engine.fork("run", ForkRequest(from_step="shaky", new_id="fork"))
        await old.engine.fork("run", ForkRequest(from_step="shaky", new_id="fork"))
    with pytest.raises(OnwardError, match=r"flow:versioned@1"):
        await new.resume(run_id, original=True)
    assert await new.engine.take(StopSwitch()) is None, "a worker without that code leaves it alone"
    assert result(await old.resume(run_id, original=True)) == ["FIRST", "at last"]
    assert executed.done['page["first"]'] == 1


@every_way
async def test_an_edit_that_calls_the_same_is_no_change(world: World, way: str) -> None:
    """F12"""
    is_edited = [False]

    async def before() -> list[str]:
        return [await page("first"), await shaky("one")]

    async def after() -> list[str]:
        """The same, written in another way."""
        found: list[str] = []
        for one in (page("first"), shaky("one")):
            found.append(await one)
        return [*found, "edited"]

    @flow
    async def edited() -> list[str]:
        return await (after() if is_edited[0] else before())

    process = await serving(world, edited)
    is_edited[0] = way == LIVE
    await begin(process, edited.bind())
    is_edited[0] = True
    if way == FORKED:
        await process.engine.fork("run", ForkRequest(from_step="shaky", new_id="fork"))
    run = await process.resume("fork" if way == FORKED else "run", original=True)
    assert result(run) == ["FIRST", "at last", "edited"]
    assert executed.done['page["first"]'] == 1


@flow
async def waiting() -> list[object]:
    async def approved(number: int) -> list[str]:
        first = await page(f"before {number}")
        decision = await ask(f"Ship {number}?", about=first)
        return [decision.choice, await page(f"after {number}")]

    found = await gather(approved(1), audit("beside"), approved(2), sleep("2h"))
    await sleep("2d")
    return [*found, await page("last")]


@every_way
@pytest.mark.slow
async def test_questions_and_sleeps_are_waited_for_beside_branches_that_work(world: World, way: str) -> None:
    """F13"""
    gives = [["yes", "AFTER 1"], "BESIDE1BESIDE2", ["yes", "AFTER 2"], None, "LAST"]
    await in_way(way, world, waiting.bind(), executed, gives=gives)


@every_way
async def test_a_cancelled_run_executes_nothing_more(world: World, way: str) -> None:
    """F16: no step, and no `except` that would pay back."""
    cancelling: list[Process] = []

    @step
    async def deadly(name: str) -> None:
        executed.note("deadly", name)
        if cancelling:
            await cancelling.pop().engine.cancel("run", by="ann")
            await asyncio.sleep(0)

    @flow
    async def costly() -> str:
        first = await page("first")
        try:
            if way == LIVE:
                await gather(deadly("one"), ask("Ship it?"))
            else:
                await ask("Ship it?")
        except Exception:
            executed.note("refund")
        return first + await page("last")

    process = await serving(world, costly)
    if way == LIVE:
        cancelling.append(await serving(world, costly))
    run = await begin(process, costly.bind())
    if way != LIVE:
        run = (await process.engine.cancel("run")).run
    assert run.status is RunStatus.CANCELLED
    assert run.gates == {}
    assert not executed.done.keys() & {"refund[]", 'page["last"]'}
    with pytest.raises(Refused) as refused:
        await (await serving(world, costly)).resume()
    assert refused.value.code == "invalid_state"
    assert await process.is_sound()
    if way == FORKED:
        await process.engine.fork("run", ForkRequest(from_step="ask", new_id="fork"))
        assert result(await live(process, costly.bind(), "fork")) == "FIRSTLAST"
        assert executed.done['page["first"]'] == 1


GRAPH = """digraph shop {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  look [type="flow:audit"]
  make [type="flow:nodes"]
  start -> look -> make -> exit
}"""


@flow
async def nodes(name: str) -> list[object]:
    return [*(await gather(page(f"{name}3"), pay(1))), await page("last")]


@every_way
async def test_flows_that_are_nodes_keep_what_was_answered(world: World, way: str) -> None:
    """F19"""
    handlers = {one.kind: FlowHandler(one) for one in (audit, nodes)}
    process = await world.process(handlers=handlers)
    run = await process.start(GRAPH, inputs={"name": "n"})
    if way == RESUMED:
        for at in places(STRIDE[world.kind]):
            executed.done.clear()
            dying = await world.process(handlers=handlers)
            dying.store.fail(Fault.DIE_AFTER, within=at)
            try:
                await dying.start(GRAPH, f"cut-{at}", inputs={"name": "n"})
            except Died:
                await dying.die()
            else:
                break
            process = await world.process(handlers=handlers)
            kept = await ended(process, f"cut-{at}", CallStatus.OK)
            run = (await process.load(f"cut-{at}")).run
            try:
                run = run if run.is_final else await process.resume(run.id)
            except Refused:
                run = await process.resume(run.id, action="continue", answers={"gather.1/pay": 1})
            is_as_expected(run)
            assert not [step for step in kept if executed.done[step] != 1]
    if way == FORKED:
        executed.done.clear()
        await process.engine.fork("run", ForkRequest(from_step="gather.0/page", new_id="fork"))
        run = await process.resume("fork", original=True)
        assert executed.done == {'page["n3"]': 1, "pay[1]": 1, 'page["last"]': 1}
    is_as_expected(run)
    assert await process.is_sound(run.id)


def is_as_expected(run: Run) -> None:
    assert run.status is RunStatus.COMPLETED, run.detail
    assert run.context["look.result"] == "N1N2"
    assert run.context["make.result"] == ["N3", 1, "LAST"]

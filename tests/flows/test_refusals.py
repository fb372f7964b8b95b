"""What a flow is refused, at its first attempt, at a resume and in a fork; nothing is written then.

Each flow here does something at first, and does it in another way once `is_changed`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onward.engine.control.requests import ForkRequest, Resume
from onward.errors import InvalidInput, LeaseLost
from onward.flows.branches import GATHER_MAX, each, gather
from onward.flows.define import flow, step
from onward.flows.running import CALLS_MAX, here
from onward.flows.scope import Scope
from onward.flows.values import current, now, patch, uuid
from onward.flows.waits import ask, sleep
from onward.model.call import CALL_BYTES_MAX
from onward.model.run import Run, RunStatus
from tests.flows.living import begin, called, live, result, serving
from tests.flows.ways import FORKED, LIVE, WAYS, Executed
from tests.world import Process, World

executed = Executed()
is_changed = [False]
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def _nothing_executed() -> None:
    executed.done.clear()
    acting.clear()
    is_changed[0] = False


@step
async def page(name: Any) -> str:
    executed.note("page", str(name))
    await asyncio.sleep(0)
    return str(name).upper()


@step
async def stamp(text: str) -> str:
    executed.note("stamp", text)
    return text


@step
async def letter(text: str, pages: list[str]) -> str:
    executed.note("letter", str(pages))
    return text


@step
async def shaky(name: str) -> str:
    if executed.note("shaky", name) < 2:
        raise ValueError("not yet")
    return "at last"


@flow
async def part() -> str:
    return await page("part")


class Client:
    """No data: it counts as an argument by its type."""


class Other(Client):
    """Another type."""


async def tasks(*work: Awaitable[str]) -> None:
    await asyncio.gather(*work)


async def in_a_task(work: Awaitable[str]) -> None:
    await asyncio.create_task(_awaited(work))


async def _awaited(work: Awaitable[str]) -> str:
    return await work


async def taken_in_turn(*work: Awaitable[str]) -> None:
    for one in work:
        await one


Act = Callable[[], Awaitable[object]]
CHANGES: dict[str, tuple[Act, Act, str]] = {
    "F2: asyncio.gather": (
        lambda: taken_in_turn(page("a"), page("b")),
        lambda: tasks(page("a"), page("b")),
        "was called from a task that the flow did not start",
    ),
    "F2: create_task": (
        lambda: taken_in_turn(page("a")),
        lambda: in_a_task(page("a")),
        "was called from a task that the flow did not start",
    ),
    "F3: another argument": (
        lambda: page("a"),
        lambda: page("b"),
        """'page' was called with ["a"] (event 5) and is now called with ["b"].""",
    ),
    "F3: another argument after a long one": (
        lambda: letter("x" * 200, ["a", "b"]),
        lambda: letter("x" * 200, ["a"]),
        """xx…,["a","b"]] (event 5) and is now called with ["xxx""",
    ),
    "F3: another end of a long argument": (
        lambda: page("x" * 200 + "a"),
        lambda: page("x" * 200 + "b"),
        "'page' is now called with other arguments than in the history (event 5), which differ after what",
    ),
    "F3: an argument of another type that is no data": (
        lambda: page(Client()),
        lambda: page(Other()),
        "and is now called with",
    ),
    "F3: a set is compared in order": (
        lambda: page({"a", "b"}),
        lambda: page({"a", "c"}),
        "and is now called with",
    ),
    "F3: another step": (
        lambda: page("a"),
        lambda: stamp("a"),
        "the history has 'page' (event 5) here, and the code now calls 'stamp'.",
    ),
    "F3: a branch more": (
        lambda: gather(page("a")),
        lambda: gather(page("a"), page("b")),
        "and the code now calls 'gather.1/page'",
    ),
    "F3: a branch less": (
        lambda: gather(page("a"), page("b")),
        lambda: gather(page("a")),
        "and the code now calls 'gather.0'",
    ),
    "F3: branches in another order": (
        lambda: gather(page("a"), stamp("b")),
        lambda: gather(stamp("b"), page("a")),
        "here, and the code now calls 'gather.",
    ),
    "F3: each in place of gather": (
        lambda: gather(page("a")),
        lambda: each(page, ["a"]),
        "the history has 'gather.0/page' (event 5) here, and the code now calls 'each.0/page'",
    ),
    "F3: a step without its flow": (
        lambda: part(),
        lambda: page("part"),
        "the history has 'part/page' (event 5) here, and the code now calls 'page'",
    ),
    "F3: a longer sleep": (
        lambda: sleep(1),
        lambda: sleep(2),
        "'sleep' was called with [1",
    ),
    "F3: another question": (
        lambda: ask("Ship it?"),
        lambda: ask("Sink it?"),
        "'ask' was called with [\"Ship it?\"]",
    ),
    "F3: a call left over": (
        lambda: taken_in_turn(page("a"), page("b")),
        lambda: page("a"),
        "the history has 'page#2' (event 6) here, and the code now calls 'stamp'",
    ),
    "F3: a call left over in a branch": (
        lambda: gather(taken_in_turn(page("a"), page("b"))),
        lambda: gather(page("a")),
        "the history has 'gather.0/page#2' (event 6), and its branch gather.0 ended without calling it.",
    ),
}


@flow
async def changing(what: str) -> str:
    """Swallows whatever it can."""
    before, after, _ = CHANGES[what]
    try:
        await (after if is_changed[0] else before)()
    except Exception:
        await stamp("refund")
    await stamp("middle")
    try:
        found = await shaky("one")
    except BaseException:
        if is_changed[0]:
            await stamp("refund")
        raise
    return found + await stamp("last")


@pytest.mark.parametrize("what", CHANGES)
@every_way
async def test_what_would_not_be_the_same_again_is_refused_and_cannot_be_swallowed(
    memory: World, way: str, what: str
) -> None:
    """F2, F3, F4"""
    process = await serving(memory, changing)
    is_history = not what.startswith("F2")
    is_changed[0] = way == LIVE
    run = await _until_it_fails(process, what)
    if way == LIVE and is_history:
        assert run.detail.endswith("ValueError: not yet"), "there is no history yet"
        return
    run_id = "run"
    if way == FORKED:
        await process.engine.fork("run", ForkRequest(from_step="shaky", new_id="fork"))
        run_id = "fork"
    before = await called(process, run_id)
    executed.done.clear()
    if way != LIVE:
        is_changed[0] = True
        run = await process.resume(run_id, original=True)
    assert run.status is RunStatus.FAILED
    assert run.reason == ("flow_changed" if is_history else "step_failed")
    assert CHANGES[what][2] in run.detail, run.detail
    assert await called(process, run_id) == before
    assert executed.done == {}
    is_changed[0] = False
    executed.note("shaky", "one")
    assert result(await process.resume(run_id, original=True)) == "at lastlast"
    assert await process.is_sound(run_id)


@pytest.mark.parametrize("makes", ["a result", "an error", "another call", "an exit"])
@every_way
async def test_a_refusal_ends_the_flow_whatever_its_code_makes_of_it(
    memory: World, way: str, makes: str
) -> None:
    """F4"""

    @flow
    async def stubborn() -> str:
        try:
            await page("first")
            if is_changed[0]:
                await (in_a_task(page("b")) if way == LIVE else page("b"))
            else:
                await page("a")
        except BaseException:
            match makes:
                case "a result":
                    return "swallowed"
                case "an error":
                    raise RuntimeError("swallowed") from None
                case "an exit":
                    raise SystemExit("swallowed") from None
            return await stamp("swallowed")
        return await shaky("one")

    process, run_id = await serving(memory, stubborn), "run"
    is_changed[0] = way == LIVE
    run = await begin(process, stubborn.bind())
    if way == FORKED:
        await process.engine.fork("run", ForkRequest(from_step="shaky", new_id="fork"))
        run_id = "fork"
    if way != LIVE:
        is_changed[0] = True
        run = await process.resume(run_id, original=True)
    assert run.status is RunStatus.FAILED
    assert run.reason == ("step_failed" if way == LIVE else "flow_changed")
    assert ("from a task" if way == LIVE else "is now called with") in run.detail
    assert "swallowed" not in run.detail
    assert 'stamp["swallowed"]' not in executed.done
    is_changed[0] = False
    executed.note("shaky", "one")
    assert result(await process.resume(run_id, original=True)) == "at last"


async def _until_it_fails(process: Process, what: str) -> Run:
    run = await begin(process, changing.bind(what))
    if run.status is RunStatus.WAITING:
        run = (await process.engine.answer("run", "yes", by="ann")).run
    assert run.status is RunStatus.FAILED
    return run


WRONG_PLACES: dict[str, tuple[Callable[[], Any], str]] = {
    "gather": (lambda: gather(), "gather"),
    "each": (lambda: each(page, []), "each"),
    "sleep": (lambda: sleep(1), "sleep"),
    "ask": (lambda: ask("Ship it?"), "ask"),
    "now": (now, "now()"),
    "uuid": (uuid, "uuid()"),
    "current": (current, "current()"),
    "patch": (lambda: patch("new"), "patch()"),
    "flow": (lambda: part(), "flow 'part' was called inside a step; call it in the flow."),
}


@step
async def misplaced(what: str) -> None:
    done = WRONG_PLACES[what][0]()
    if asyncio.iscoroutine(done):
        await done


@flow
async def misplacing(what: str) -> None:
    await page("first")
    await misplaced(what)


@pytest.mark.parametrize("what", WRONG_PLACES)
@every_way
async def test_inside_a_step_everything_but_a_step_is_refused(memory: World, way: str, what: str) -> None:
    """F17"""
    process = await serving(memory, misplacing)
    run = await begin(process, misplacing.bind(what))
    if way == FORKED:
        await process.engine.fork("run", ForkRequest(from_step="misplaced", new_id="fork"))
    if way != LIVE:
        run = await process.resume("fork" if way == FORKED else "run", original=True)
    assert run.status is RunStatus.FAILED
    assert "step 'misplaced' failed: InvalidInput" in run.detail
    says = WRONG_PLACES[what][1]
    assert (says if what == "flow" else f"{says} does not work inside a step") in run.detail.replace(
        "(…)", ""
    )


@pytest.mark.parametrize("what", [what for what in WRONG_PLACES if what != "flow"])
async def test_outside_a_flow_what_needs_one_is_refused(what: str) -> None:
    """F17: a step is its function, a flow is refused (`test_steps.py`)."""
    with pytest.raises(InvalidInput, match="works only inside a flow"):
        await misplaced.function(what)


def _at_the_last_call() -> None:
    scope = here.get()
    assert isinstance(scope, Scope)
    assert scope.flow is not None
    scope.flow.calls = CALLS_MAX - 1


async def _one_call_too_many() -> None:
    _at_the_last_call()
    await page("the last")
    await page("one too many")


async def _one_branch_too_many() -> None:
    await gather(*(page(str(number)) for number in range(GATHER_MAX + 1)))


async def _a_key_too_long() -> None:
    async def inner(depth: int) -> None:
        await (gather(inner(depth - 1)) if depth else page("deep"))

    await inner(25)


CEILINGS: dict[str, tuple[Act, str, int]] = {
    "calls": (_one_call_too_many, "made 100,000 calls, the most that a flow can make", 1),
    "branches": (_one_branch_too_many, "gather takes at most 1,000 branches; write `await each(…)`", 0),
    "keys": (_a_key_too_long, "of a call has more than 200 characters", 0),
}


@flow
async def large(what: str) -> None:
    if what in CEILINGS:
        await page("first")
        await CEILINGS[what][0]()
    await shaky("one")


@pytest.mark.parametrize("what", CEILINGS)
@every_way
async def test_what_is_too_large_is_refused_in_plain_words(memory: World, way: str, what: str) -> None:
    """F22"""
    process = await serving(memory, large)
    run = await begin(process, large.bind(what))
    count = 1 + CEILINGS[what][2]
    if way == FORKED:
        if count > 1:
            await process.engine.fork("run", ForkRequest(from_step="page#2", new_id="fork"))
        else:
            place = (await process.load()).run.head - 2
            await process.engine.fork("run", ForkRequest(place, new_id="fork"))
    run_id = "fork" if way == FORKED else "run"
    if way != LIVE:
        run = await process.resume(run_id, original=True)
    assert run.status is RunStatus.FAILED
    assert CEILINGS[what][1] in run.detail, run.detail
    assert len(await called(process, run_id)) == count


@pytest.mark.parametrize("once", [False, True])
async def test_an_answer_that_is_too_large_is_refused_and_what_was_done_is_not_repeated(
    memory: World, once: bool
) -> None:
    """F22"""

    @step(once=once)
    async def huge(text: bool) -> Any:
        executed.note("huge")
        return "x" * CALL_BYTES_MAX if text else bytes(CALL_BYTES_MAX)

    @step
    async def as_large_as_may_be() -> int:
        return len(await raw())

    @step
    async def raw() -> bytes:
        return bytes(CALL_BYTES_MAX)

    @flow
    async def hoarding() -> Any:
        return [await as_large_as_may_be(), len(await raw()), await huge(text=True)]

    process = await serving(memory, hoarding)
    run = await begin(process, hoarding.bind())
    says = "the result of call 'huge' has 67,108,866 bytes, and at most 67,108,864 can be stored; "
    assert f"{says}write it into a file and return its path" in run.detail
    assert run.status is (RunStatus.INTERRUPTED if once else RunStatus.FAILED)
    if once:
        run = await process.resume(action="continue", answers={"huge": "small"})
        assert result(run) == [CALL_BYTES_MAX, CALL_BYTES_MAX, "small"]
        assert executed.done["huge[]"] == 1


acting: list[tuple[Process, str]] = []
"""Who acts on which run while a step of it is executed."""


@step
async def acted(what: str) -> None:
    executed.note("acted", what)
    for process, run_id in acting:
        match what:
            case "a pause":
                await process.engine.pause(run_id, after="call")
            case "a cancel":
                await process.engine.cancel(run_id)
            case _:
                await process.engine.resume(run_id, Resume(take_over=True, run=False))
    acting.clear()


async def acted_and_more(what: str) -> None:
    await acted(what)
    await page("second")


ENDS: dict[str, Act] = {
    "a question": lambda: ask("Ship it?"),
    "a long sleep": lambda: sleep("1h"),
    "a pause": lambda: acted_and_more("a pause"),
    "a cancel": lambda: acted_and_more("a cancel"),
    "a lost lease": lambda: acted_and_more("a lost lease"),
    "a refusal": lambda: in_a_task(page("second")),
}


@flow
async def careful(what: str) -> str:
    """Counts what reaches its code."""
    try:
        await page("first")
        await shaky("one")
        await gather(ENDS[what](), stamp("beside"))
    except Exception:
        executed.note("refund")
        raise
    except asyncio.CancelledError:
        executed.note("cancelled")
        with contextlib.suppress(asyncio.CancelledError):
            await page("meanwhile")
        raise
    finally:
        executed.note("finally")
    return await page("last")


@pytest.mark.parametrize("what", ENDS)
@every_way
async def test_what_suspends_a_flow_is_no_error_for_its_code(world: World, way: str, what: str) -> None:
    """F5: it is a CancelledError, `finally` runs each time, and no call is made meanwhile."""
    process, run_id = await serving(world, careful), "run"
    if way == LIVE:
        executed.note("shaky", "one")
    else:
        await begin(process, careful.bind(what))
    if way == FORKED:
        await process.engine.fork("run", ForkRequest(from_step="shaky", new_id="fork"))
        run_id = "fork"
    executed.done = Counter({'shaky["one"]': 1})
    acting.append((await serving(world, careful), run_id))
    try:
        if way == LIVE:
            run = await begin(process, careful.bind(what))
        else:
            run = await process.resume(run_id, original=True)
    except LeaseLost:
        assert what == "a lost lease"
        run = (await process.load(run_id)).run
    acting.clear()
    assert run.status is STATUS[what], run.detail
    assert executed.done["cancelled[]"] == executed.done["finally[]"] == 1
    assert not executed.done.keys() & {"refund[]", 'page["meanwhile"]', 'page["second"]', 'page["last"]'}
    assert executed.done['page["first"]'] == (way == LIVE)
    assert executed.done['stamp["beside"]'] == 1
    assert await process.is_sound(run_id)
    if what in ("a cancel", "a refusal"):
        return
    other = await serving(world, careful)
    assert result(await live(other, careful.bind(what), run_id)) == "LAST"
    assert not executed.done.keys() & {"refund[]", 'page["meanwhile"]'}
    if what != "a lost lease":  # what was under way then had no answer
        assert executed.done['stamp["beside"]'] == 1
    assert await other.is_sound(run_id)


STATUS = {
    "a question": RunStatus.WAITING,
    "a long sleep": RunStatus.WAITING,
    "a pause": RunStatus.PAUSED,
    "a cancel": RunStatus.CANCELLED,
    "a lost lease": RunStatus.QUEUED,
    "a refusal": RunStatus.FAILED,
}

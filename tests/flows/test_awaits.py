"""A forgotten `await` is named, and no run completes without the call."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from onward.flows.branches import gather
from onward.flows.define import flow, step
from onward.model.run import RunStatus
from tests.flows.living import Outside, begin, result, serving
from tests.world import World

outside = Outside()
is_mended = [False]


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    outside.done.clear()
    is_mended[0] = False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited")
        yield
        gc.collect()


@step
async def pack(what: Any) -> str:
    outside.do("pack")
    return f"{what} in a box"


@step(once=True)
async def pay() -> str:
    outside.do("pay")
    return "paid"


@flow
async def order() -> str:
    box = await pack("lamp")
    if is_mended[0]:
        await pay()
    else:
        pay()  # type: ignore[unused-coroutine]
    return box


@flow
async def part() -> str:
    return await pay()


@flow
async def parts() -> str:
    if not is_mended[0]:
        part()  # type: ignore[unused-coroutine]
        return await pack("lamp")
    return await pack("lamp") + " " + await part()


@flow
async def returns() -> Any:
    return pay() if not is_mended[0] else await pay()


@flow
async def passes() -> str:
    try:
        return await pack(pay() if not is_mended[0] else await pay())
    except Exception:
        return await pack("a refund")


@flow
async def gathers() -> tuple[Any, ...]:
    work: Any = [pay(), pack("lamp")]
    return await gather(*work) if is_mended[0] else await gather(work)


@pytest.mark.parametrize(
    ("bound", "told", "done"),
    [
        (order.bind(), "its code calls 'pay' without `await`, so that call did not run", "lamp in a box"),
        (parts.bind(), "its code calls 'part' without `await`", "lamp in a box paid"),
        (returns.bind(), "its code calls 'pay' without `await`, so that call did not run", "paid"),
        (passes.bind(), "'what' of step 'pack' is a call without `await`", "paid in a box"),
        (gathers.bind(), "was given a list; write `gather(*calls)`", ["paid", "lamp in a box"]),
    ],
    ids=["left alone", "a flow in a flow", "returned", "passed on", "in a list"],
)
async def test_a_call_without_await_fails_the_flow_which_continues_when_it_is_mended(
    memory: World, bound: Any, told: str, done: Any
) -> None:
    process = await serving(memory, bound.flow)
    run = await begin(process, bound)
    assert run.status is RunStatus.FAILED
    assert told in run.detail
    assert outside.done["pay"] == 0
    is_mended[0] = True
    assert result(await process.resume()) == done
    assert set(outside.done.values()) == {1}


async def test_the_warning_of_python_names_the_step() -> None:
    with pytest.warns(RuntimeWarning, match="coroutine 'pay' was never awaited"):
        _forget()


def _forget() -> None:
    pay()  # type: ignore[unused-coroutine]
    gc.collect()

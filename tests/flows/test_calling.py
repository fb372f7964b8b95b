"""How a program calls a flow: a slip is refused where it is made, and no run is created."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from onward import Onward
from onward.errors import FlowFailed, InvalidInput
from onward.flows.define import Flow, flow, step


@step
async def pay(cents: int) -> str:
    return f"paid {cents}"


@flow
async def order(number: int, note: str = "") -> str:
    return await pay(number)


@pytest.fixture
async def app() -> AsyncIterator[Onward]:
    async with Onward(":memory:") as app:
        yield app


@pytest.mark.parametrize("verb", ["call", "run", "submit"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (order, r"flow 'order' is not bound to its arguments; write order.bind\(…\)."),
        (pay, "'pay' is a step; await it in a function with @flow."),
        (17, r"a int is not a flow with its arguments; write FLOW.bind\(…\)."),
    ],
)
async def test_what_is_no_flow_with_its_arguments_is_refused(
    app: Onward, verb: str, given: Any, told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        await getattr(app, verb)(given)
    assert (await app.list())["runs"] == []


async def test_a_call_of_a_name_is_refused(app: Onward) -> None:
    name: Any = "order"
    with pytest.raises(InvalidInput, match=r"a str is not a flow with its arguments; write FLOW.bind\(…\)."):
        await app.call(name)


@pytest.mark.parametrize("verb", ["call", "submit"])
@pytest.mark.parametrize("key", ["", 17])
async def test_a_key_is_text_that_is_not_empty(app: Onward, verb: str, key: Any) -> None:
    """Under an empty key the second order was refused, because a run with its id existed."""
    with pytest.raises(InvalidInput, match=f"key={key!r} cannot be a key; give text that is not empty"):
        await getattr(app, verb)(order.bind(17), key=key)
    assert (await app.list())["runs"] == []


def test_an_argument_of_another_type_is_refused_before_there_is_a_run() -> None:
    number: Any = "17"
    with pytest.raises(
        InvalidInput, match="'number' of flow 'order' does not fit: Expected `int`, got `str`"
    ):
        order.bind(number)


def test_arguments_that_a_flow_does_not_take_are_refused_with_its_name() -> None:
    build: Any = order
    with pytest.raises(TypeError, match=r"order\(\): missing a required argument: 'number'"):
        build.bind()
    with pytest.raises(TypeError, match=r"order\(\): got an unexpected keyword argument 'cents'"):
        build.bind(17, cents=3)


def test_a_version_is_text() -> None:
    version: Any = 2
    with pytest.raises(InvalidInput, match="version=2 of flow 'order': write text"):
        Flow(order.function, version=version)


async def test_a_result_of_another_type_fails_the_flow_and_a_corrected_flow_keeps_its_steps(
    tmp_path: Path,
) -> None:
    """It completed, and from then on every call under its key was refused."""
    paid: list[int] = []

    @step
    async def charge(cents: int) -> str:
        paid.append(cents)
        return f"paid {cents}"

    @flow(name="orders")
    async def wrong(number: int) -> int:
        return await charge(number)  # type: ignore[return-value]

    @flow(name="orders")
    async def right(number: int) -> list[object]:
        return [await charge(number)]

    async with Onward(tmp_path / "onward.db") as app:
        with pytest.raises(FlowFailed, match="result of flow 'orders' does not match int: Expected `int`"):
            await app.call(wrong.bind(17), key="order-17")
    async with Onward(tmp_path / "onward.db") as app:
        assert await app.call(right.bind(17), key="order-17") == ["paid 17"]
    assert paid == [17]

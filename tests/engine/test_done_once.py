"""What was done is done: no result, and no error, of a user's function makes it be done again.

A file outside counts what was done, as whoever pays for it would.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest

from onward.clock import SystemClock, SystemIds
from onward.engine.effects import AtMostOnce, Once
from onward.errors import EffectFailed, InvalidInput, Refused, ResultLost
from onward.handlers.calls import CallAnswer
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.call import CallLost
from onward.model.run import RunStatus
from tests.conformance.processes import Connect
from tests.world import Process, World, line

SOURCE = line("work", work="type=work, max_retries=2")


class Ledger:
    """What was paid: a line in a file for each time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pay(self) -> None:
        with self._path.open("a") as file:
            file.write("paid\n")

    @property
    def paid(self) -> int:
        return len(self._path.read_text().splitlines()) if self._path.exists() else 0


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


Charge = Callable[[], Any]


class Gadget:
    """What a library returns."""


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Receipt:
    number: str
    amount: Decimal


def charging(ledger: Ledger, returned: Callable[[], Any], *, is_async: bool = True) -> Charge:
    """A function that pays, and returns this."""

    async def charge() -> Any:
        ledger.pay()
        return returned()

    def charge_plainly() -> Any:
        ledger.pay()
        return returned()

    return charge if is_async else charge_plainly


async def at(world: World, charge: Charge, *, how: str = "call") -> Process:
    """A process whose step pays by a call, or by an effect."""

    async def work(step: StepContext) -> dict[str, Any]:
        if how == "call":
            return {"got": await step.call("charge", charge, repeatable=False, retries=2)}
        return {"got": await step.effect("charge", charge, only_success=how == "only_success")}

    return await world.process(handlers={"work": FunctionHandler(work)})


def released() -> memoryview:
    """Bytes that were given back before they were stored."""
    view = memoryview(b"R-17")
    view.release()
    return view


class Unseen:
    """Does not let itself be looked at."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no")

    @__class__.setter
    def __class__(self, other: Any) -> None: ...


class Answers:
    """Says that it is what an agent's call answers."""

    @property
    def __class__(self) -> Any:
        return CallAnswer

    @__class__.setter
    def __class__(self, other: Any) -> None: ...


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "object": Gadget,
    "surrogate": lambda: "paid \ud800",
    "generator": lambda: (one for one in (1, 2)),
    "nan": lambda: float("nan"),
    "inside": lambda: {"lines": [Gadget()]},
    "released": released,
    "unseen": Unseen,
    "answers": Answers,
}
PLAIN = ("inside", "unseen")
"""Those that a plain function returns, of which nobody knows before whether it is to be awaited."""


@pytest.mark.parametrize("how", ["call", "effect", "only_success"])
@pytest.mark.parametrize("kind", UNSTORABLE)
async def test_a_result_that_cannot_be_stored_leaves_what_was_done_in_doubt(
    world: World, ledger: Ledger, kind: str, how: str
) -> None:
    charge = charging(ledger, UNSTORABLE[kind], is_async=kind not in PLAIN)
    process = await at(world, charge, how=how)
    run = await process.start(SOURCE)
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert "was done and will not be repeated" in run.detail
    for _ in range(2):
        with pytest.raises(Refused, match="it was done, but the result") as refused:
            await process.resume()
        assert refused.value.code == "in_doubt"
    assert ledger.paid == 1
    lost = [event for event in await process.events() if isinstance(event, CallLost)]
    assert [event.is_done for event in lost] == [True]
    assert await process.is_sound()
    key = "charge" if how == "call" else "effect:charge"
    run = await (await at(world, charge, how=how)).resume(action="continue", answers={key: "R-17"})
    assert (run.status, run.context["got"]) == (RunStatus.COMPLETED, "R-17")
    assert ledger.paid == 1


async def test_the_doubt_names_the_type_and_what_to_return(world: World, ledger: Ledger) -> None:
    process = await at(world, charging(ledger, Gadget))
    run = await process.start(SOURCE)
    assert "the result of call 'charge' is a Gadget, which cannot be stored; return null" in run.detail
    assert "--continue --answer charge=VALUE" in run.detail


STORED: dict[str, tuple[Any, Any]] = {
    "decimal": (Decimal("12.50"), "12.50"),
    "datetime": (datetime(2030, 1, 31, 9, tzinfo=UTC), "2030-01-31T09:00:00Z"),
    "date": (date(2030, 1, 31), "2030-01-31"),
    "uuid": (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    "path": (PurePosixPath("a/b"), "a/b"),
    "enum": (Colour.RED, "red"),
    "set": ({"b", "a"}, ["a", "b"]),
    "dataclass": (Receipt("R-17", Decimal(3)), {"number": "R-17", "amount": "3"}),
}


@pytest.mark.parametrize("how", ["call", "effect"])
@pytest.mark.parametrize("kind", STORED)
async def test_common_types_are_stored_by_one_rule_and_given_back_as_they_were_stored(
    world: World, ledger: Ledger, kind: str, how: str
) -> None:
    returned, stored = STORED[kind]
    process = await at(world, charging(ledger, lambda: returned), how=how)
    run = await process.start(SOURCE)
    assert (run.status, run.context["got"]) == (RunStatus.COMPLETED, stored)
    assert ledger.paid == 1


def _numbers() -> Iterator[int]:
    yield 1


def _gadget() -> Gadget:
    raise AssertionError("it is not called")


@pytest.mark.parametrize("how", ["call", "effect"])
@pytest.mark.parametrize("charge", [_numbers, _gadget])
async def test_a_function_that_says_that_its_result_cannot_be_stored_is_not_called(
    world: World, charge: Charge, how: str
) -> None:
    process = await at(world, charge, how=how)
    run = await process.start(SOURCE)
    assert run.status is RunStatus.FAILED
    assert "cannot be stored" in run.detail
    assert not [event for event in await process.events() if isinstance(event, CallLost)]


@pytest.fixture
async def effects(connect: Connect) -> Any:
    store = await connect()
    yield AtMostOnce(store.effects, SystemClock(), SystemIds(), store.leases.lease_s)
    await store.close()


@pytest.mark.parametrize("only_success", [False, True])
async def test_an_effect_of_no_step_whose_result_cannot_be_stored_is_in_doubt(
    effects: AtMostOnce, ledger: Ledger, only_success: bool
) -> None:
    charge, once = charging(ledger, Gadget), Once(only_success=only_success)
    with pytest.raises(ResultLost, match=r"is a Gadget.*onward effect charge --done TEXT"):
        await effects.call("charge", charge, once)
    with pytest.raises(Refused) as refused:
        await effects.call("charge", charge, once)
    assert refused.value.code == "effect_in_doubt"
    await effects.settle("charge", "R-17")
    assert await effects.call("charge", charge, once) == "R-17"
    assert ledger.paid == 1


async def test_an_effect_of_no_step_stores_common_types_and_refuses_what_says_that_it_cannot(
    effects: AtMostOnce, ledger: Ledger
) -> None:
    for _ in range(2):
        assert await effects.call("charge", charging(ledger, lambda: {Decimal("1.5")})) == ["1.5"]
    assert ledger.paid == 1
    with pytest.raises(InvalidInput, match="cannot be stored"):
        await effects.call("other", _gadget)
    assert await effects.find("other") is None


# -- errors that do not let themselves be printed ----------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


class HalfPrinted(Exception):
    def __str__(self) -> str:
        return "declined \ud800"


class NotText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class EndsAll(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class Stopped(StopIteration):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raising(error: type[BaseException]) -> Callable[[], Any]:
    def raise_() -> Any:
        raise error

    return raise_


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("error", [Unprintable, HalfPrinted, NotText, EndsAll, Stopped])
async def test_an_effect_whose_error_cannot_be_printed_is_made_once(
    world: World, ledger: Ledger, error: type[Exception], is_async: bool
) -> None:
    charge = charging(ledger, raising(error), is_async=is_async)
    process = await at(world, charge, how="effect")
    run = await process.start(SOURCE)
    assert run.status is RunStatus.FAILED
    assert "effect 'charge' failed and will not run again" in run.detail
    assert (await (await at(world, charge, how="effect")).resume()).status is RunStatus.FAILED
    assert ledger.paid == 1
    assert await process.is_sound()


@pytest.mark.parametrize("error", [Unprintable, HalfPrinted, EndsAll, Stopped])
async def test_an_effect_of_no_step_whose_error_cannot_be_printed_is_made_once(
    effects: AtMostOnce, ledger: Ledger, error: type[Exception]
) -> None:
    charge = charging(ledger, raising(error), is_async=False)
    with pytest.raises((error, RuntimeError)):
        await effects.call("charge", charge)
    with pytest.raises(EffectFailed):
        await effects.call("charge", charge)
    assert ledger.paid == 1


@pytest.mark.parametrize("error", [Unprintable, HalfPrinted, NotText, EndsAll, Stopped])
async def test_a_handler_whose_error_cannot_be_printed_fails_like_any_other(
    world: World, ledger: Ledger, error: type[Exception]
) -> None:
    def work(step: StepContext) -> None:
        ledger.pay()
        raise error

    process = await world.process(handlers={"work": FunctionHandler(work)})
    run = await process.start(line("work", work="type=work, max_retries=0"))
    assert run.status is RunStatus.FAILED
    assert ledger.paid == 1
    assert await process.is_sound()


class Ends(BaseException):
    """Not an Exception: it goes through everything."""


@pytest.mark.parametrize("how", ["call", "effect", "only_success"])
@pytest.mark.parametrize("error", [Ends, SystemExit, GeneratorExit])
async def test_what_ended_with_no_ordinary_error_is_in_doubt(
    world: World, ledger: Ledger, error: type[BaseException], how: str
) -> None:
    charge = charging(ledger, raising(error))
    first = await at(world, charge, how=how)
    try:
        await first.start(SOURCE)
    except BaseException as raised:
        if not isinstance(raised, error):
            raise
    await first.die()
    second = await at(world, charge, how=how)
    with pytest.raises(Refused) as refused:
        await second.resume()
    assert refused.value.code == "in_doubt"
    assert ledger.paid == 1


@pytest.mark.parametrize("error", [Ends, SystemExit, asyncio.CancelledError])
async def test_an_effect_of_no_step_that_ended_with_no_ordinary_error_is_in_doubt_at_once(
    effects: AtMostOnce, ledger: Ledger, error: type[BaseException]
) -> None:
    """Its process lives, and works on it no more: whoever asks next would wait for ever."""
    charge = charging(ledger, raising(error))
    with pytest.raises(error):
        await effects.call("charge", charge)
    with pytest.raises(Refused) as refused:
        await asyncio.wait_for(effects.call("charge", charge), 20)
    assert refused.value.code == "effect_in_doubt"
    assert ledger.paid == 1

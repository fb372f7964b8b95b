"""A function that exits, or raises what does not let itself be looked at, ends its call and nothing else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onward.errors import Refused, kind_of, told
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.result import REASON_MAX
from onward.model.run import RunStatus
from onward.redact.redactor import Redactor
from onward.threads import in_thread
from tests.world import World, line

SOURCE = line("work", work="type=work, max_retries=0")


def exits() -> Any:
    sys.exit("the library gave up")


async def in_a_gather(step: StepContext, key: str, *, repeatable: bool) -> None:
    await asyncio.gather(step.call(key, exits, repeatable=repeatable), asyncio.sleep(0))


def from_a_thread(step: StepContext, key: str, *, repeatable: bool) -> None:
    step.call_sync(key, exits, repeatable=repeatable)


@pytest.mark.parametrize("how", [in_a_gather, from_a_thread])
async def test_a_call_that_exits_fails_and_does_not_end_the_process(
    world: World, how: Callable[..., Any]
) -> None:
    def work(step: StepContext) -> Any:
        return how(step, "one", repeatable=True)

    process = await world.process(handlers={"work": FunctionHandler(work)})
    run = await process.start(SOURCE)
    assert run.status is RunStatus.FAILED
    assert "the function raised SystemExit: the library gave up" in run.detail
    assert await process.is_sound()


@pytest.mark.parametrize("how", [in_a_gather, from_a_thread])
async def test_a_call_that_exits_and_must_not_be_repeated_is_in_doubt(
    world: World, how: Callable[..., Any]
) -> None:
    def work(step: StepContext) -> Any:
        return how(step, "one", repeatable=False)

    process = await world.process(handlers={"work": FunctionHandler(work)})
    run = await process.start(SOURCE)
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    with pytest.raises(Refused, match="must not be repeated"):
        await process.resume()
    assert await process.is_sound()


# In functions, since pytest looks at all that is at the top of a module.
def anonymous() -> Exception:
    """Of a class that does not say its name."""

    class Nameless(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise RuntimeError("no")

    class Anonymous(Exception, metaclass=Nameless):
        pass

    return Anonymous("gone")


def closed() -> Exception:
    """With no attribute that anybody may read."""

    class Closed(Exception):
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("no")

    return Closed()


def test_an_error_is_told_by_its_class_whatever_that_says_of_its_name() -> None:
    assert told(anonymous()) == "Anonymous: gone"
    assert kind_of(closed()) == "Closed"


@pytest.mark.parametrize("error", [anonymous, closed])
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_effect_whose_error_does_not_let_itself_be_looked_at_is_made_once(
    world: World, tmp_path: Path, error: Callable[[], Exception], is_async: bool
) -> None:
    ledger = tmp_path / "ledger"

    def charge() -> None:
        with ledger.open("a") as file:
            file.write("paid\n")
        raise error()

    async def charge_later() -> None:
        charge()

    async def work(step: StepContext) -> None:
        await step.effect("charge", charge_later if is_async else charge)

    handlers = {"work": FunctionHandler(work)}
    process = await world.process(handlers=handlers)
    run = await process.start(line("work", work="type=work, max_retries=2"))
    assert run.status is RunStatus.FAILED
    assert (await process.resume()).status is RunStatus.FAILED
    assert ledger.read_text() == "paid\n"


async def test_an_error_of_a_thread_reaches_its_caller_whatever_it_says_of_itself() -> None:
    raised = closed()

    def raises() -> None:
        raise raised

    found = await asyncio.wait_for(asyncio.gather(in_thread(raises), return_exceptions=True), 20)
    assert found[0] is raised


LONG = "x" * (REASON_MAX - 5) + "hunter-2-hunter-2" + "x" * 100_000


@pytest.mark.parametrize("how", ["handler", "call", "effect", "once"])
async def test_of_a_very_long_error_the_beginning_is_recorded_and_no_half_of_a_secret(
    world: World, how: str
) -> None:
    def raises() -> Any:
        raise ValueError(LONG[len("ValueError: ") :])

    async def work(step: StepContext) -> None:
        match how:
            case "handler":
                raises()
            case "effect":
                await step.effect("one", raises)
            case _:
                await step.call("one", raises, repeatable=how == "call")

    process = await world.process(
        handlers={"work": FunctionHandler(work)}, redactor=Redactor({"PIN": "hunter-2-hunter-2"})
    )
    run = await process.start(line("work", work="type=work, max_retries=0"))
    assert run.status is RunStatus.FAILED
    assert "characters)" in run.detail
    written = [str(event) for event in await process.events()]
    assert max(map(len, written)) < 2 * REASON_MAX + 20_000
    assert not any("xhunte" in text for text in written)

"""Plain functions run in threads, which nobody can end: no attempt overlaps one, and none starves another."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from onward.engine.stop import StopSwitch
from onward.errors import LeaseLost, Refused
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.handlers.user_functions import PATIENCE_S
from onward.model.events import AttemptInterrupted
from onward.model.result import Result
from onward.model.run import AttemptState, Run, RunStatus
from onward.testing.clock import ManualClock
from onward.threads import begin_in_thread
from tests.world import Process, World, line, until

LIMITED = line("a", a='type=work, timeout="5s", max_retries=3')


class Charge:
    """A function that charges a card, slowly: each call stands still until it is let through."""

    def __init__(self) -> None:
        self.ledger: list[str] = []
        self._doors: list[threading.Event] = []
        self.fails = False

    def __call__(self, step: StepContext) -> dict[str, int]:
        door = threading.Event()
        self.ledger.append("begun")
        self._doors.append(door)
        door.wait()
        self.ledger.append("ended")
        if self.fails:
            raise ValueError("the card was refused")
        return {"charged": 1}

    @property
    def begun(self) -> int:
        return len(self._doors)

    def release(self) -> None:
        for door in list(self._doors):
            door.set()

    def finish(self) -> None:
        """Let all calls through, and wait until their threads have ended."""
        self.release()
        for thread in threading.enumerate():
            if thread.name.startswith("onward "):
                thread.join()


@pytest.fixture
def charge() -> Iterator[Charge]:
    charge = Charge()
    yield charge
    charge.finish()  # leaves no thread to the next test, which may have a run of the same name


async def serving(memory: World, charge: Charge) -> Process:
    clock = ManualClock(autojump=False)
    return await memory.process(clock=clock, handlers={"work": FunctionHandler(charge)})


async def pass_time(process: Process, seconds: float) -> None:
    """Let time pass in small steps, as a clock does, so that whoever begins to wait is not left behind."""
    for _ in range(round(seconds)):
        process.clock.advance(1)
        for _ in range(20):
            await asyncio.sleep(0)


async def ending(process: Process, driving: asyncio.Task[Run]) -> Run:
    """The run when it has stopped, however much time has to pass until then."""
    while not driving.done():
        await pass_time(process, 1)
    return await driving


@pytest.mark.parametrize("fails", [False, True])
async def test_a_function_over_its_time_limit_is_waited_for_and_its_late_result_counts(
    memory: World, charge: Charge, fails: bool
) -> None:
    """I29."""
    process = await serving(memory, charge)
    driving = asyncio.create_task(process.start(line("a", a='type=work, timeout="5s", max_retries=0')))
    await until(lambda: charge.begun == 1)
    await pass_time(process, 30)
    assert not driving.done()
    charge.fails = fails
    charge.release()
    run = await driving
    assert charge.ledger == ["begun", "ended"]
    if fails:
        assert (run.status, run.detail) == (RunStatus.FAILED, "step a#1: ValueError: the card was refused")
    else:
        assert (run.status, run.context["charged"]) == (RunStatus.COMPLETED, 1)


async def test_a_function_that_outlives_all_patience_stops_the_run_in_doubt(
    memory: World, charge: Charge
) -> None:
    """I36."""
    process = await serving(memory, charge)
    driving = asyncio.create_task(process.start(LIMITED))
    await until(lambda: charge.begun == 1)
    run = await ending(process, driving)
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert charge.ledger == ["begun"], "no attempt begins beside one that still runs"
    for said in ("a#1", "timed out after 5 s", f"process {os.getpid()}", "thread", "cannot be stopped"):
        assert said in run.detail
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.code == "in_doubt"
    assert await process.is_sound()


async def test_a_retry_in_the_same_process_waits_for_the_function_that_still_runs(
    memory: World, charge: Charge
) -> None:
    """I29."""
    process = await serving(memory, charge)
    driving = asyncio.create_task(process.start(LIMITED))
    await until(lambda: charge.begun == 1)
    await ending(process, driving)
    again = asyncio.create_task(process.resume(action="retry"))
    await pass_time(process, PATIENCE_S / 2)
    assert (charge.begun, again.done()) == (1, False)
    charge.release()
    await until(lambda: charge.begun == 2)
    charge.release()
    assert (await again).status is RunStatus.COMPLETED
    assert charge.ledger == ["begun", "ended", "begun", "ended"]


async def test_a_retry_that_waits_in_vain_is_in_doubt_again(memory: World, charge: Charge) -> None:
    """I29."""
    process = await serving(memory, charge)
    driving = asyncio.create_task(process.start(LIMITED))
    await until(lambda: charge.begun == 1)
    await ending(process, driving)
    again = asyncio.create_task(process.resume(action="retry"))
    run = await ending(process, again)
    assert (run.status, run.reason, charge.begun) == (RunStatus.INTERRUPTED, "in_doubt", 1)


async def test_a_pause_now_waits_for_a_function_and_then_leaves_it_in_doubt(
    memory: World, charge: Charge
) -> None:
    """Another process may resume a paused run, and must not begin the step while it still runs here."""
    process = await serving(memory, charge)
    driving = asyncio.create_task(process.start(line("a", a="type=work")))
    await until(lambda: charge.begun == 1)
    await process.engine.pause("run", after="now", by="ann")
    await pass_time(process, process.store.leases.heartbeat_s + 10)
    assert not driving.done()
    run = await ending(process, driving)
    assert (run.status, run.reason) == (RunStatus.PAUSED, "operator")
    with pytest.raises(Refused) as refused:
        await (await memory.process(handlers={"work": FunctionHandler(charge)})).resume()
    assert refused.value.code == "in_doubt"
    assert "(paused by ann, and its function still runs in thread 'onward run/a#1'" in str(refused.value)
    assert charge.ledger == ["begun"]


async def test_a_function_that_ends_during_a_pause_now_has_finished(memory: World, charge: Charge) -> None:
    process = await serving(memory, charge)
    driving = asyncio.create_task(process.start(line("a", "b", a="type=work", b="type=work")))
    await until(lambda: charge.begun == 1)
    await process.engine.pause("run", after="now", by="ann")
    await pass_time(process, process.store.leases.heartbeat_s + 1)
    charge.release()
    assert (await driving).status is RunStatus.PAUSED
    assert await process.completed() == ["start#1", "a#1"]


async def test_a_cancel_does_not_wait_for_a_function(memory: World, charge: Charge) -> None:
    """I36."""
    process = await serving(memory, charge)
    driving = asyncio.create_task(process.start(line("a", a="type=work")))
    await until(lambda: charge.begun == 1)
    await process.engine.cancel("run", by="ann")
    assert (await ending(process, driving)).status is RunStatus.CANCELLED
    assert charge.ledger == ["begun"]


@pytest.mark.parametrize("first", ["nothing", "time", "pause"])
async def test_a_stop_now_does_not_wait_for_a_function(memory: World, charge: Charge, first: str) -> None:
    """I36."""
    process, stop = await serving(memory, charge), StopSwitch()
    driving = asyncio.create_task(process.start(LIMITED, stop=stop))
    await until(lambda: charge.begun == 1)
    if first == "pause":
        await process.engine.pause("run", after="now", by="ann")
    if first != "nothing":
        await pass_time(process, 10)
    stop.request("signal", now=True)
    run = await driving
    assert (run.status, run.open_steps["a#1"].state) == (RunStatus.PAUSED, AttemptState.INTERRUPTED)
    (cut,) = [event for event in await process.events() if isinstance(event, AttemptInterrupted)]
    assert (cut.why, cut.in_doubt) == ("stopped by a signal", False)
    again = asyncio.create_task(process.resume())
    await pass_time(process, 2)
    assert charge.begun == 1, "this process knows that it still runs"
    charge.release()
    await until(lambda: charge.begun == 2)
    charge.release()
    assert (await again).status is RunStatus.COMPLETED


async def test_a_lost_lease_leaves_a_function_and_the_same_process_does_not_overlap_it(
    memory: World, charge: Charge
) -> None:
    """I29."""
    process = await serving(memory, charge)
    other = await memory.process(handlers={"work": FunctionHandler(charge)})
    driving = asyncio.create_task(process.start(line("a", a="type=work")))
    await until(lambda: charge.begun == 1)
    stop = StopSwitch()
    stop.request("signal")
    await other.resume(take_over=True, stop=stop)
    with pytest.raises(LeaseLost):
        await ending(process, driving)
    again = asyncio.create_task(process.resume())
    await pass_time(process, 2)
    assert charge.begun == 1
    charge.release()
    await until(lambda: charge.begun == 2)
    charge.release()
    assert (await again).status is RunStatus.COMPLETED


async def test_functions_that_never_end_keep_no_thread_from_others(memory: World, charge: Charge) -> None:
    """asyncio's own pool has only as many threads as the machine has cores, and four more. I37."""
    process, number = await memory.process(handlers={"work": FunctionHandler(charge)}), 40
    hanging = [
        asyncio.create_task(process.start(line("a", a="type=work"), f"run-{number}"))
        for number in range(number)
    ]
    await until(lambda: charge.begun == number)
    assert await asyncio.to_thread(lambda: "asyncio's pool is free") == "asyncio's pool is free"
    assert {thread.daemon for thread in threading.enumerate() if thread.name.startswith("onward ")} == {True}
    charge.release()
    assert {run.status for run in await asyncio.gather(*hanging)} == {RunStatus.COMPLETED}


async def test_a_function_sees_the_context_variables_of_its_caller(memory: World) -> None:
    seen, variable = list[str](), ContextVar[str]("variable")

    def look(step: StepContext) -> None:
        seen.append(variable.get())

    process = await memory.process(handlers={"work": FunctionHandler(look)})
    variable.set("as it was set")
    assert (await process.start(line("a", a="type=work"))).status is RunStatus.COMPLETED
    assert seen == ["as it was set"]


async def test_an_effect_of_an_attempt_that_is_over_is_refused(memory: World) -> None:
    """Whatever an attempt left behind begins nothing through us any more. I12."""
    kept = list[StepContext]()

    async def leave(step: StepContext) -> Result:
        kept.append(step)
        return Result.success()

    process = await memory.process({"a": [leave]})
    await process.start(line("a"))
    made = list[int]()
    with pytest.raises(Refused) as refused:
        await kept[0].effect("charge", lambda: made.append(1))
    assert (refused.value.code, made) == ("attempt_over", [])
    assert await process.store.effects.find("run/a#1/charge") is None


async def test_an_effect_over_the_time_limit_of_its_step_is_waited_for_and_remembered(
    memory: World, charge: Charge
) -> None:
    """I29."""

    async def pay(step: StepContext) -> Result:
        await step.effect("charge", lambda: charge(step))
        return Result.success()

    clock = ManualClock(autojump=False)
    process = await memory.process({"a": [pay]}, clock=clock)
    driving = asyncio.create_task(process.start(line("a", a='timeout="5s", max_retries=2')))
    await until(lambda: charge.begun == 1)
    await pass_time(process, 20)
    assert (charge.begun, driving.done()) == (1, False)
    charge.finish()  # before time passes: it would use up all patience while the thread wakes
    assert (await ending(process, driving)).status is RunStatus.COMPLETED
    assert charge.ledger == ["begun", "ended"]


async def test_a_function_whose_result_is_there_is_not_running_any_more() -> None:
    """Else a resume in the same process would meet a function whose result it has, and be in doubt."""
    ended, thread_goes_on = list[str](), threading.Event()

    def end() -> None:
        if threading.current_thread() is not threading.main_thread():
            thread_goes_on.wait()  # the thread is held up between the result and its end
        ended.append(threading.current_thread().name)

    assert await begin_in_thread(lambda: "done", name="slow", ended=end) == "done"
    assert ended == [threading.main_thread().name]
    thread_goes_on.set()
    await until(lambda: len(ended) == 2)

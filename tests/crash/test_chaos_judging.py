"""A storm resumes only what its own faults stopped, and its judges find what it looks for."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.engine import Engine
from onward.machine.decide.requests import claim_of
from onward.model.call import CallStarted
from onward.model.events import RunFailed
from onward.model.run import RunStatus
from onward.store.codec import unseal
from onward.testing.model_endpoint import LedgerEntry
from onward.wiring import open_store
from tests.agents.test_agent_step import at, model
from tests.agents.tooling import Counting, asks, wish, working
from tests.crash.chaos_agents import PROJECT, TEXT, chat_of, judge_chats, judge_requests, judge_spending
from tests.crash.chaos_runs import RESUMED, run_id_of, submit, tend
from tests.crash.chaos_tools import ECHO, NOT_DONE, PAY, SAID, STEP, Traces, decided, judge_tools
from tests.worker.ledger import Ledger
from tests.world import Process, World, line

SOURCE = line("work", work="type=work")


async def fail(url: str, run_id: str, reason: str) -> None:
    """Let a run fail for this reason."""
    store = await open_store(url)
    engine = Engine(store, clock=SystemClock(), ids=SystemIds(), dice=SystemDice(), handlers={})
    failed = RunFailed(reason=reason, detail=reason)
    await engine.journal.control(
        run_id,
        lambda folded: (claim_of(folded.run, store.leases.owner), failed),
        append_id=f"fail {run_id}",
    )
    await engine.close()


async def test_a_storm_resumes_runs_that_lost_too_many_holders_and_no_others(tmp_path: Path) -> None:
    url, done = str(tmp_path / "storm.db"), Counter[str]()
    traces = Traces(tmp_path, Ledger(tmp_path / "lives"))
    await submit(url, 3, SOURCE)
    assert await tend(url, traces, done) == 3
    assert done.total() == 0
    await fail(url, run_id_of(0), "crash_loop")
    await fail(url, run_id_of(1), "step_failed")
    assert await tend(url, traces, done) == 2, "one that was resumed is queued, one was never taken"
    assert await tend(url, traces, done) == 2
    assert done == Counter({RESUMED: 1})
    store = await open_store(url)
    assert await store.runs.count() == {RunStatus.QUEUED: 2, RunStatus.FAILED: 1}
    await store.close()


async def talked(world: World, text: str = TEXT) -> Process:
    """A process that has executed two runs of a storm, whose model says this."""
    process = await at(world, model(default=text))
    for number in range(2):
        run_id = run_id_of(number)
        run = await process.start(line("talk"), run_id, chat=chat_of(number), project=PROJECT)
        assert run.status is RunStatus.COMPLETED
    return process


@pytest.mark.parametrize(("later_us", "found"), [(-1, 0), (5_000, 1)])
async def test_a_request_after_its_answer_was_stored_is_found(
    memory: World, later_us: int, found: int
) -> None:
    process = await talked(memory)
    answered = next(one for one in await process.log(run_id_of(1)) if one.kind == "CallFinished")
    made = LedgerEntry(
        number=1,
        at_us=answered.at_us + later_us,
        path="/",
        body_hash="",
        body_bytes=0,
        idempotency_key=f"{run_id_of(1)}/talk#1/m1",
    )
    assert len(await judge_requests(process.store, run_id_of(1), [made], 2_000)) == found
    assert await judge_requests(process.store, run_id_of(0), [made], 2_000) == []


@pytest.mark.parametrize("is_tidied", [False, True])
@pytest.mark.parametrize(("text", "found"), [(TEXT, 0), (TEXT[:-1], 2), (TEXT + "x", 2)])
async def test_a_message_that_is_not_the_whole_answer_is_found(
    memory: World, text: str, found: int, is_tidied: bool
) -> None:
    """Also in a long storm, after which the chunks of the first messages are gone."""
    process = await talked(memory, text)
    if is_tidied:
        assert await process.store.messages.tidy(before_us=2**60, limit=100) > 0
    assert len(await judge_chats(process.store)) == found


async def test_spending_that_the_logs_do_not_add_up_to_is_found(memory: World) -> None:
    process = await talked(memory)
    assert await judge_spending(process.store, [run_id_of(0), run_id_of(1)]) == []
    (found,) = await judge_spending(process.store, [run_id_of(0)])
    assert "but the logs say" in found


RUN = run_id_of(1)
KEYS = {"look": f"{RUN}/{STEP}/m1.t1", "pay": f"{RUN}/{STEP}/m2.t1"}


def traces_of(place: Path, *marks: str, echoed: int = 1, lives: int = 1) -> Traces:
    """Traces with these marks, each `what tool at_us pid`; and so many uses of the server and commands."""
    lines = (mark.split() for mark in marks)
    (place / "uses").write_text(
        "".join(f"{what} {tool} {KEYS[tool]} {at_us} {pid}\n" for what, tool, at_us, pid in lines)
    )
    call = json.dumps({"method": "tools/call", "params": {"arguments": {"text": RUN}}}) + "\n"
    (place / "server").write_text(call * echoed)
    ledger = Ledger(place / "lives")
    ledger.path.write_text("".join(f"{RUN}/{STEP} {pid} {pid * 1000}\n" for pid in range(lives)))
    return Traces(place, ledger)


WELL = ("begin look 1 7", "end look 2 7", "begin pay 3 7", "end pay 4 7")
BACK = ("begin look 1 6", "end look 2 6", "begin look 3 7", "begin look 5 6", "end look 6 6", *WELL[2:])
"""A run that one process loses to another, and gets back."""


@pytest.mark.parametrize(
    ("marks", "more", "found"),
    [
        (WELL, {}, []),
        (BACK, {}, []),
        ((*WELL, "begin pay 5 8"), {}, ["pay was done 2 times"]),
        (WELL[:2], {}, ["pay was never done, and answered []"]),
        (WELL[2:], {}, ["look was never done"]),
        (WELL, {"echoed": 2}, ["files__echo was done 2 times"]),
        (WELL, {"lives": 2}, ["shell was done 2 times"]),
        (WELL, {"lives": 0}, ["shell was never done"]),
        (("begin look 1 6", *WELL[:2], "end look 3 6", *WELL[2:]), {}, ["two uses were under way at once"]),
    ],
)
async def test_a_use_of_a_tool_that_is_missing_or_one_too_many_is_found(
    memory: World, tmp_path: Path, marks: tuple[str, ...], more: dict[str, int], found: list[str]
) -> None:
    process = await at(memory, model(default=TEXT))
    await process.start(line("talk"), RUN)
    uses, problems = await judge_tools(process.store, [RUN], traces_of(tmp_path, *marks, **more), 2_000)
    assert uses > 0
    assert len(problems) == len(found)
    assert all(told in problem for told, problem in zip(found, problems, strict=True)), problems


@pytest.mark.parametrize(("later_us", "found"), [(-1, 0), (5_000, 1)])
async def test_a_use_of_a_tool_after_its_answer_was_stored_is_found(
    memory: World, tmp_path: Path, later_us: int, found: int
) -> None:
    tool = Counting("look")
    process = await working(memory, model(asks(wish("look"))), tool)
    await process.start(line("use"), RUN)
    used = next(one for one in await process.log(RUN) if getattr(unseal(one), "call", "") == "m1.t1")
    at_us = used.at_us + later_us
    marks = (f"begin look {at_us} 7", f"end look {at_us} 7", "begin pay 3 7", "end pay 4 7")
    _, problems = await judge_tools(process.store, [RUN], traces_of(tmp_path, *marks), 2_000)
    assert len(problems) == found


def test_a_person_says_what_the_traces_say_of_uses_in_doubt(tmp_path: Path) -> None:
    begun = [
        CallStarted(step=STEP, attempt=1, call="m1.t2", number=1, name=ECHO, repeatable=False),
        CallStarted(step=STEP, attempt=1, call="m2.t1", number=1, name=PAY, repeatable=False),
    ]
    calls = ["m1.t2", "m2.t1"]
    done = decided(RUN, begun, calls, traces_of(tmp_path, "begin pay 3 7"))
    assert done == {"m1.t2": f"echo: {RUN}", "m2.t1": SAID[PAY]}
    assert decided(RUN, begun, calls, traces_of(tmp_path, echoed=0)) == {
        call: NOT_DONE.format(tool=tool, run_id=RUN) for call, tool in zip(calls, (ECHO, PAY), strict=True)
    }

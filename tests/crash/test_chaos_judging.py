"""A storm resumes only what its own faults stopped, and its judges find what it looks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.engine import Engine
from onward.machine.decide.claim import claim_of
from onward.model.event import RunFailed
from onward.model.run import RunStatus
from onward.testing.models.ledger import Entry
from onward.wiring import open_store
from tests.agents.test_agent_step import at, model
from tests.crash.chaos_agents import PROJECT, TEXT, chat_of, judge_chats, judge_requests, judge_spending
from tests.crash.chaos_runs import run_id_of, submit, tend
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
    url = str(tmp_path / "storm.db")
    await submit(url, 3, SOURCE)
    assert await tend(url) == (0, 3)
    await fail(url, run_id_of(0), "crash_loop")
    await fail(url, run_id_of(1), "step_failed")
    assert await tend(url) == (1, 2), "the one that was resumed is queued, and another was never taken"
    assert await tend(url) == (0, 2)
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
    made = Entry(
        number=1,
        at_us=answered.at_us + later_us,
        path="/",
        body_hash="",
        body_bytes=0,
        idempotency_key=f"{run_id_of(1)}/talk#1/m1",
    )
    assert len(await judge_requests(process.store, run_id_of(1), [made], 2_000)) == found
    assert await judge_requests(process.store, run_id_of(0), [made], 2_000) == []


@pytest.mark.parametrize(("text", "found"), [(TEXT, 0), (TEXT[:-1], 2), (TEXT + "x", 2)])
async def test_a_message_that_is_not_the_whole_answer_is_found(memory: World, text: str, found: int) -> None:
    process = await talked(memory, text)
    assert len(await judge_chats(process.store)) == found


async def test_spending_that_the_logs_do_not_add_up_to_is_found(memory: World) -> None:
    process = await talked(memory)
    assert await judge_spending(process.store, [run_id_of(0), run_id_of(1)]) == []
    (found,) = await judge_spending(process.store, [run_id_of(0)])
    assert "but the logs say" in found

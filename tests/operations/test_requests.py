"""Requests through the one layer of operations: decided here, executed by whoever takes the run."""

from __future__ import annotations

import pytest

from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused, RunNotFound
from onward.model.gate import Verdict
from onward.model.ids import display_id
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.operations.local.operations import LocalOperations
from onward.operations.protocol import Operations
from onward.operations.requests import (
    AnswerGate,
    CancelRun,
    ForkRun,
    GetRun,
    ListCheckpoints,
    ListGates,
    ListRuns,
    PauseRun,
    ReadEvents,
    ResumeRun,
    RunGates,
    SteerRun,
    SubmitRun,
)
from tests.conformance.drafts import created
from tests.engine.test_resume_doors import crashed
from tests.test_pause import GATED
from tests.world import Process, World, line


def of(process: Process) -> Operations:
    return LocalOperations(process.engine, process.clock)


async def work(process: Process) -> str:
    """Execute the run whose turn it is, as a worker does."""
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    return (await taken[1]).run.status.value


# -- deciding ------------------------------------------------------------------------------------------


async def test_a_submitted_run_is_executed_by_a_worker_and_nothing_before(world: World) -> None:
    asking = of(await world.process(handlers={}))
    made = await asking.start.submit_run(SubmitRun(source=line("a"), run_id="run", inputs={"who": "you"}))
    assert (made["run"]["status"], made["run"]["context"]["who"]) == ("queued", "you")
    assert world.ledger.steps == []
    assert await work(await world.process()) == "completed"
    assert world.ledger.steps == ["a#1"]


async def test_a_submission_under_a_key_is_one_run_however_often_it_is_sent(world: World) -> None:
    """Caller and key name the run, so a caller that never heard its id sends the same again."""
    one, two = await world.process(), await world.process()
    two.clock.advance(5)
    request = SubmitRun(source=line("a"), key="order-7", by="shop")
    ids = [(await of(process).start.submit_run(request))["run"]["id"] for process in (one, two)]
    assert ids[0] == ids[1]
    other = SubmitRun(source=line("a"), key="order-7", by="another shop")
    assert (await of(two).start.submit_run(other))["run"]["id"] != ids[0]
    with pytest.raises(Refused) as refused:
        await of(two).start.submit_run(SubmitRun(source=line("b"), key="order-7", by="shop"))
    assert refused.value.code == "key_reused"


async def test_a_fork_under_a_key_is_one_run(world: World) -> None:
    process = await world.process()
    await process.start(line("a"))
    request = ForkRun(run="run", checkpoint=1, changes={"x": 1}, key="again")
    first = await of(process).start.fork_run(request)
    process.clock.advance(5)
    assert (await of(process).start.fork_run(request))["id"] == first["id"]
    assert first["parent"] == {"run": "run", "seq": 1}
    assert len((await of(process).lists.list_runs(ListRuns()))["runs"]) == 2


async def test_a_resume_leaves_the_run_to_a_worker(world: World) -> None:
    await crashed(world, line("a", "b"))
    asking = of(await world.process(handlers={}))
    queued = await asking.decide.resume_run(ResumeRun(run="run", by="ann"))
    assert (queued["status"], queued["holder"], queued["notice"]) == ("queued", None, "")
    assert await work(await world.process()) == "completed"
    assert world.ledger.steps == ["a#1", "a#1", "b#1"]


@pytest.mark.parametrize("action", ["retry", "skip", "abort"])
async def test_a_stopped_step_is_decided_once_per_key(world: World, action: str) -> None:
    process = await world.process({"a": [Result.fail("no")]})
    await process.start(line("a", "b"))
    request = ResumeRun(run="run", action=action, key="key-1")
    first = await of(process).decide.resume_run(request)
    before = await process.log()
    assert await of(process).decide.resume_run(request) == first
    assert await process.log() == before


async def test_an_answer_queues_the_run_that_waited_for_it(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    answered = await of(process).decide.answer_gate(AnswerGate(run="run", verdict=Verdict.APPROVE))
    assert answered["status"] == "queued"
    assert await work(process) == "completed"


async def test_an_answer_to_a_question_that_has_changed_is_refused(world: World) -> None:
    """Whoever answers has seen one state of the run; `if_head` says which."""
    process = await world.process()
    await process.start(GATED)
    seen = (await of(process).look.get_run(GetRun(run="run")))["head"]
    await of(process).decide.steer_run(SteerRun(run="run", text="look again"))
    with pytest.raises(Refused) as refused:
        await of(process).decide.answer_gate(AnswerGate(run="run", choice="yes", if_head=seen))
    assert (refused.value.code, refused.value.details["head"]) == ("stale_head", seen + 1)
    assert (await process.load()).run.status is RunStatus.WAITING


async def test_a_run_is_cancelled_by_its_id_even_if_that_is_the_display_id_of_another(
    world: World,
) -> None:
    """Databases of older versions may have such runs: today the second one is refused."""
    store = (process := await world.process()).store
    first = await created(store, "first")
    second = await created(store, display_id(first.id))
    cancelled = await of(process).decide.cancel_run(CancelRun(run=second.id))
    assert cancelled["id"] == second.id
    exact = await of(process).decide.cancel_run(CancelRun(run="id:first"))
    assert exact["id"] == "first"
    for name in ("id:fir", f"id:{display_id('third')}", "id:", "id:id:first"):
        with pytest.raises(RunNotFound):
            await of(process).decide.cancel_run(CancelRun(run=name))


async def test_a_cancelled_run_says_why(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    cancelled = await of(process).decide.cancel_run(CancelRun(run="run", reason="wrong customer"))
    assert (cancelled["status"], cancelled["reason"]) == ("cancelled", "user")
    (listed,) = (await of(process).lists.list_runs(ListRuns()))["runs"]
    assert cancelled["detail"] == listed["detail"] == "wrong customer"


async def test_one_key_is_not_for_two_kinds_of_request(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    await of(process).decide.pause_run(PauseRun(run="run", key="key-1"))
    with pytest.raises(Refused) as refused:
        await of(process).decide.cancel_run(CancelRun(run="run", key="key-1"))
    assert refused.value.code == "key_reused"


# -- looking -------------------------------------------------------------------------------------------


async def test_a_run_is_found_by_the_beginning_of_its_name(world: World) -> None:
    process = await world.process()
    await process.start(line("a"), "my-run")
    assert (await of(process).look.get_run(GetRun(run="my-")))["id"] == "my-run"
    with pytest.raises(RunNotFound):
        await of(process).look.get_run(GetRun(run="your-"))


async def test_a_list_counts_what_its_limit_leaves_out_when_asked(world: World) -> None:
    process = await world.process()
    for number in range(3):
        await process.start(line("a"), f"run-{number}")
        process.clock.advance(1)
    found = await of(process).lists.list_runs(ListRuns(limit=2, older=True, completed=True))
    assert [run["id"] for run in found["runs"]] == ["run-2", "run-1"]
    assert found["older"] == 1
    assert found["runs"][0]["completed"] == ["start#1", "a#1", "exit#1"]


async def test_a_run_whose_owner_died_is_listed_as_interrupted_only(world: World) -> None:
    await crashed(world, line("a"))
    lists = of(await world.process()).lists

    async def listed(*statuses: RunStatus) -> list[str]:
        return [run["status"] for run in (await lists.list_runs(ListRuns(statuses=statuses)))["runs"]]

    assert await listed(RunStatus.INTERRUPTED) == ["interrupted"]
    assert await listed(RunStatus.RUNNING) == []
    assert await listed(RunStatus.RUNNING, RunStatus.INTERRUPTED) == ["interrupted"]


async def test_runs_are_listed_page_by_page_and_by_every_filter(world: World) -> None:
    process, lists = await world.process(), of(await world.process()).lists
    for number in range(5):
        await process.start(line("a"), f"run-{number}")
    found, cursor = list[str](), None
    for _ in range(3):
        page = await lists.list_runs(ListRuns(limit=2, cursor=cursor))
        found += [run["id"] for run in page["runs"]]
        cursor = page["cursor"]
    assert (found, cursor) == ([f"run-{number}" for number in (4, 3, 2, 1, 0)], None)
    (only,) = (await lists.list_runs(ListRuns(text="RUN-3")))["runs"]
    assert only["id"] == "run-3"
    assert (await lists.list_runs(ListRuns(reasons=("crash",))))["runs"] == []
    assert (await lists.list_runs(ListRuns(parent="run-1")))["runs"] == []
    with pytest.raises(InvalidInput, match="cursor is not one of this list"):
        await lists.list_runs(ListRuns(cursor="nonsense"))


async def test_open_questions_are_listed_with_their_runs(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    await process.start(line("a"), "other")
    lists = of(process).lists
    inbox = await lists.list_gates(ListGates())
    (gate,) = inbox["gates"]
    assert (gate["run"], gate["text"], inbox["cursor"]) == ("run", "Ship it?", None)
    assert (await lists.list_gates(ListGates(pipeline="another")))["gates"] == []
    (asked,) = await lists.run_gates(RunGates(run="run"))
    assert (asked["text"], asked["decided"]) == ("Ship it?", None)
    assert await lists.run_gates(RunGates(run="other")) == []


async def test_a_log_is_followed_until_its_run_has_ended(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    kinds: list[object] = []
    async for event in of(process).look.read_events(ReadEvents(run="run", after=1, follow=True)):
        kinds.append(event["kind"])
        if event["kind"] == "RunWaiting":
            await process.engine.cancel("run")
    assert kinds == (await process.kinds())[1:]
    assert kinds[-1] == "RunCancelled"


async def test_a_log_has_the_same_events_after_any_of_them_in_the_dialect(world: World) -> None:
    process = await world.process()
    await process.start(line("a"))
    look = of(process).look
    whole = [event async for event in look.read_events(ReadEvents(run="run", dialect=True))]
    rest = [event async for event in look.read_events(ReadEvents(run="run", dialect=True, after=4))]
    assert rest == [event for event in whole if event["seq"] > 4]


async def test_every_checkpoint_can_be_forked_from(world: World) -> None:
    process = await world.process()
    await process.start(line("a"))
    found = of(process).look.list_checkpoints(ListCheckpoints(run="run"))
    for seq in [checkpoint["seq"] async for checkpoint in found]:
        forked = await of(process).start.fork_run(ForkRun(run="run", checkpoint=seq))
        assert forked["parent"] == {"run": "run", "seq": seq}


def test_a_new_run_needs_a_source_or_a_name() -> None:
    for pipeline in (None, ""):
        with pytest.raises(InvalidInput, match="needs a pipeline"):
            SubmitRun(pipeline=pipeline)

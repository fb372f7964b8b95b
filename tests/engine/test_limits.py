"""A run that a limit stopped: what is said, what resumes it, and what a raised limit lifts."""

from __future__ import annotations

import pytest

from onward.engine.control.limits import LimitChanges, run_scopes
from onward.engine.control.requests import Resume, StartRequest
from onward.errors import InvalidInput, Refused
from onward.model.call import AttemptHeld, LimitHit
from onward.model.events import RunInterrupted, RunPaused, StepStarted
from onward.model.ids import display_id
from onward.model.limits import raise_argument, raised_amount
from onward.model.run import AttemptState, RunStatus
from onward.operations.local.operations import LocalOperations
from onward.operations.requests import GetRun, LimitRaise, ResumeRun
from onward.store.port.store import Store
from tests.conformance.drafts import Draft, claimed, requested
from tests.conformance.limits import begun, ended, used, working
from tests.world import Process, World, line

pytestmark = pytest.mark.anyio


async def held_by(store: Store, draft: Draft, scope: str, *, limit: int = 100, spent: int = 100) -> Draft:
    """The run in the middle of a step that a limit holds."""
    run = await claimed(store, draft)
    write, begins = run.then(StepStarted(step="a#1", node="a", attempt=1), with_row=False)
    await store.log.append(write, run.lease)
    hit = LimitHit(scope=scope, measure="tokens", limit=limit, spent=spent, reserved=0, wanted=50)
    held = AttemptHeld(step="a#1", attempt=1, reason="limit", detail=f"{scope} is spent", limit=hit)
    write, after = begins.then(held, with_row=False)
    await store.log.append(write, begins.lease)
    return after


async def stopped_by_limit(
    process: Process, scope: str, *, chat: str | None = None, spent: int = 100
) -> Draft:
    """A run that stopped for a limit of 100 tokens, because its next call needs 50 of them."""
    await process.engine.submit(process.pipeline(line("a", "b")), StartRequest(run_id="run", chat=chat))
    loaded = await process.engine.journal.load("run")
    store: Store = process.store
    await store.limits.change(scope, {"tokens": 100})
    after = await held_by(store, Draft(loaded.run, loaded.position), scope, spent=spent)
    return await requested(store, after, RunInterrupted(reason="limit", detail="spent"), append_id="stop")


async def spend(world: World, scope: str, tokens: int) -> None:
    other = await world.process()
    run = await begun(other.store, await working(other.store, "other"), scope, tokens=tokens)
    run = await ended(other.store, run, usage=used(tokens))
    await requested(other.store, run, RunPaused(reason="operator"))


async def test_a_resume_under_a_limit_that_is_still_spent_is_refused_with_the_figures(world: World) -> None:
    """S0-30, S0-36"""
    process = await world.process()
    await spend(world, "run/run", 100)
    await stopped_by_limit(process, "run/run")
    with pytest.raises(Refused) as refused:
        await process.engine.resume("run", Resume())
    assert refused.value.code == "limit_exceeded"
    assert refused.value.details == {"scope": "run/run", "measure": "tokens", "used": 100, "limit": 100}
    assert "run/run has spent 100 of 100 tokens" in str(refused.value)
    assert "`onward resume run --raise run.tokens=200`" in str(refused.value)
    assert (await process.engine.journal.load("run")).run.status is RunStatus.INTERRUPTED


async def test_a_resume_that_would_stop_at_the_same_call_again_is_refused(world: World) -> None:
    """Something is left, but no more than the call did not fit into."""
    process = await world.process()
    await spend(world, "run/run", 70)
    await stopped_by_limit(process, "run/run", spent=70)
    with pytest.raises(Refused) as refused:
        await process.engine.resume("run", Resume())
    assert "run/run has spent 70 of 100 tokens, which is not enough" in str(refused.value)
    assert "--raise run.tokens=200`" in str(refused.value)
    assert refused.value.code == "limit_exceeded"
    assert (await process.engine.journal.load("run")).run.status is RunStatus.INTERRUPTED


@pytest.mark.parametrize("limit", [101, 0])
async def test_a_limit_that_leaves_more_room_than_it_did_lets_the_run_try(world: World, limit: int) -> None:
    process = await world.process()
    await spend(world, "run/run", 70)
    await stopped_by_limit(process, "run/run", spent=70)
    await process.store.limits.change("run/run", {"tokens": limit})
    operations = LocalOperations(process.engine, process.clock)
    stopped = (await operations.look.get_run(GetRun(run="run")))["limit"]
    assert stopped is not None
    assert stopped["raise_to"] is None
    assert (await process.engine.resume("run", Resume())).run.status is RunStatus.COMPLETED


async def test_a_step_that_asks_anew_may_need_less_and_is_tried(world: World) -> None:
    process = await world.process()
    await spend(world, "run/run", 70)
    await stopped_by_limit(process, "run/run", spent=70)
    assert (await process.engine.resume("run", Resume(action="retry"))).run.status is RunStatus.COMPLETED


async def test_a_day_that_is_over_stops_no_resume(world: World) -> None:
    process = await world.process()
    yesterday = "day/2001-01-01"
    await spend(world, yesterday, 100)
    await stopped_by_limit(process, yesterday)
    assert (await process.engine.resume("run", Resume())).run.status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("measure", "limit", "spent", "wanted", "argument"),
    [
        ("tokens", 500, 246, 8_347, "run.tokens=8600"),
        ("tokens", 200_000, 199_990, 8_347, "run.tokens=400000"),
        ("calls", 1, 1, 1, "run.calls=2"),
        ("cost", 2_500_000, 2_400_000, 150_000, "run.cost=5.00"),
        ("cost", 21, 20, 12_345, "run.cost=0.013"),
    ],
)
def test_what_to_raise_a_limit_to_leaves_room_and_is_easy_to_type(
    measure: str, limit: int, spent: int, wanted: int, argument: str
) -> None:
    hit = LimitHit(scope="run/r", measure=measure, limit=limit, spent=spent, reserved=0, wanted=wanted)
    enough = raised_amount(hit, limit=limit, spent=spent, reserved=0)
    assert enough >= spent + wanted
    assert raise_argument("run/r", measure, enough) == argument


async def test_a_limit_is_raised_and_the_run_resumed_in_one_request(world: World) -> None:
    """S0-35"""
    process = await world.process()
    await spend(world, "run/run", 100)
    await stopped_by_limit(process, "run/run")
    operations = LocalOperations(process.engine, process.clock)
    raising = LimitRaise(kind="run", measure="tokens", value=500)
    resumed = await operations.decide.resume_run(ResumeRun(run="run", raises=(raising,)))
    assert resumed["status"] == "queued"
    (scope,) = await process.store.limits.read(["run/run"])
    assert scope.limit.tokens == 500
    after = await process.engine.resume("run", Resume())
    assert after.run.status is RunStatus.COMPLETED


async def test_a_run_that_a_limit_stopped_says_which_and_how_much_is_used(world: World) -> None:
    """S0-31"""
    process = await world.process()
    await spend(world, "chat/c", 100)
    await stopped_by_limit(process, "chat/c", chat="c")
    operations = LocalOperations(process.engine, process.clock)
    state = await operations.look.get_run(GetRun(run="run"))
    assert (state["status"], state["reason"]) == ("interrupted", "limit")
    assert state["limit"] == {
        "scope": "chat/c",
        "measure": "tokens",
        "limit": 100,
        "used": 100,
        "reserved": 0,
        "wanted": 50,
        "raise_to": "chat.tokens=200",
        "steps_finished": 0,
        "steps_open": 1,
    }


async def test_what_is_no_raise_and_no_scope_of_the_run_is_refused_before_anything_changes(
    world: World,
) -> None:
    process = await world.process()
    draft = await stopped_by_limit(process, "run/run")
    changes = LimitChanges(process.store, process.clock)
    with pytest.raises(InvalidInput, match="has no chat"):
        await changes.raise_for(draft.run, [("run", "tokens", 900), ("chat", "tokens", 5)], by="pat")
    with pytest.raises(InvalidInput, match="count in run/run, not in run/other"):
        await changes.raise_for(draft.run, [("run", "tokens", 900), ("run/other", "tokens", 900)], by="pat")
    with pytest.raises(InvalidInput, match="already 100"):
        await changes.raise_for(draft.run, [("run", "tokens", 50)], by="pat")
    (scope,) = await process.store.limits.read(["run/run"])
    assert scope.limit.tokens == 100


async def test_a_limit_to_raise_may_be_named_by_its_scope(world: World) -> None:
    process = await world.process()
    draft = await stopped_by_limit(process, "run/run")
    changes = LimitChanges(process.store, process.clock)
    await changes.raise_for(draft.run, [("run/run", "tokens", 900)], by="pat")
    await changes.raise_for(draft.run, [(f"run/{display_id('run')}", "tokens", 901)], by="pat")
    (scope,) = await process.store.limits.read(["run/run"])
    assert scope.limit.tokens == 901


async def test_a_raised_limit_lifts_the_holds_of_runs_that_are_running(world: World) -> None:
    """And leaves those alone that something else holds, or that another limit does."""
    process = await world.process()
    for id, chat in (("one", "c"), ("two", "d")):
        await process.engine.submit(process.pipeline(line("a", "b")), StartRequest(run_id=id, chat=chat))
        loaded = await process.engine.journal.load(id)
        await held_by(process.store, Draft(loaded.run, loaded.position), f"chat/{chat}")
    changes = LimitChanges(process.store, process.clock)
    _, lifted = await changes.change("chat/c", {"tokens": 1_000}, by="pat")
    assert lifted == ["one"]
    states = {}
    for id in ("one", "two"):
        states[id] = (await process.engine.journal.load(id)).run.open_steps["a#1"].state
    assert states == {"one": AttemptState.INTERRUPTED, "two": AttemptState.HELD}
    assert (await changes.change("chat", {"tokens": 2_000}, by="pat"))[1] == ["two"]
    assert (await changes.change("chat", {"tokens": 3_000}, by="pat"))[1] == []


async def test_the_calls_of_a_run_count_in_its_day_its_root_its_chat_and_its_project(world: World) -> None:
    process = await world.process()
    start = StartRequest(run_id="run", chat="c", project="p", charged_to="first")
    await process.engine.submit(process.pipeline(line("a")), start)
    run = (await process.engine.journal.load("run")).run
    assert run_scopes(run, 1_700_000_000_000_000) == ("chat/c", "day/2023-11-14", "project/p", "run/first")

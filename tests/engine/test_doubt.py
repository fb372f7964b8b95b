"""Steps that started and never finished: repeated where that is harmless, else decided by a person."""

from __future__ import annotations

from onward.model.events import StepFinished, StepStatus
from onward.model.result import Result
from onward.model.run import AttemptState, RunStatus
from tests.engine.test_resume_doors import crashed, refusal
from tests.world import World, line

DOUBTFUL = line("a", "pay", "b", pay="repeatable=false")


async def test_a_step_that_must_not_be_repeated_is_in_doubt_after_a_crash(world: World) -> None:
    """Nothing is done until a person says what became of it."""
    await crashed(world, DOUBTFUL, at="pay")
    process = await world.process()
    refused = await refusal(process)
    assert (refused.code, refused.details["step"], refused.details["attempt"]) == ("in_doubt", "pay#1", 1)
    assert "--retry, --skip, --continue or --abort" in str(refused)
    assert world.ledger.steps == ["a#1", "pay#1"]


async def test_a_step_in_doubt_can_be_tried_again(world: World) -> None:
    await crashed(world, DOUBTFUL, at="pay")
    run = await (await world.process()).resume(action="retry")
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.attempts("pay") == [1, 2]


async def test_a_step_in_doubt_can_be_skipped(world: World) -> None:
    await crashed(world, DOUBTFUL, at="pay")
    process = await world.process()
    assert (await process.resume(action="skip")).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "pay#1", "b#1"]
    (pay,) = [e for e in await process.events() if isinstance(e, StepFinished) and e.node == "pay"]
    assert pay.outcome.status is StepStatus.SKIPPED


async def test_a_step_in_doubt_can_be_continued(world: World) -> None:
    """The handler is told that somebody began this before, under the same idempotency key."""
    await crashed(world, DOUBTFUL, at="pay")
    seen = []
    process = await world.process()

    async def look(step: object) -> Result:
        seen.append(step)
        return Result.success()

    process.agent.script["pay"] = [look]
    await process.resume(action="continue")
    assert [getattr(step, "is_continued", None) for step in seen] == [True]
    assert len({call.idempotency_key for call in world.ledger.calls if call.node == "pay"}) == 1


async def test_a_step_in_doubt_can_be_given_up_with_its_run(world: World) -> None:
    await crashed(world, DOUBTFUL, at="pay")
    run = await (await world.process()).resume(action="abort", by="ann")
    assert (run.status, run.reason, run.open_steps) == (RunStatus.CANCELLED, "user", {})


async def test_a_stopped_step_that_is_not_in_doubt_can_be_skipped_too(world: World) -> None:
    process = await world.process({"a": [Result.fail("no")]})
    assert (await process.start(line("a", "b"))).open_steps["a#1"].state is AttemptState.FAILED
    assert (await process.resume(action="skip")).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1"]

"""How much of the past an agent step is shown after a resume: the first one less, and the log says so."""

from __future__ import annotations

from onward.machine.fold.snapshot import decode_run, encode_run
from onward.model.events import StepStarted
from onward.model.run import RunStatus
from tests.conformance.faults import Died
from tests.engine.test_resume_doors import crashed
from tests.world import World, line

FULL = line("a", "b", "c", "d").replace("digraph line {", "digraph line {\n  graph [default_fidelity=full]")


async def test_the_first_agent_step_after_a_resume_is_shown_a_summary_and_the_second_is_free(
    world: World,
) -> None:
    """K12, R6: what the handler is told, and what the log says about it."""
    await crashed(world, FULL, at="b")
    process = await world.process()
    assert (await process.resume()).status is RunStatus.COMPLETED
    told = [(call.step, call.fidelity) for call in world.ledger.calls]
    assert told == [
        ("a#1", "full"),
        ("b#1", "full"),
        ("b#1", "summary:high"),
        ("c#1", "full"),
        ("d#1", "full"),
    ]
    started = [event for event in await process.events() if isinstance(event, StepStarted)]
    assert [(event.fidelity, event.degraded_from) for event in started if event.step == "b#1"] == [
        ("full", ""),
        ("summary:high", "full"),
    ]


async def test_a_crash_in_the_first_step_after_a_resume_leaves_it_the_first(world: World) -> None:
    """K12: the hop that did not finish has not been taken."""
    await crashed(world, FULL, at="b")
    process = await world.process({"b": [Died("again")]})
    try:
        await process.resume()
    except Died:
        await process.die()
    await (await world.process()).resume()
    assert [call.fidelity for call in world.ledger.calls if call.node == "b"] == [
        "full",
        "summary:high",
        "summary:high",
    ]


async def test_a_step_that_is_not_shown_everything_anyway_loses_nothing(world: World) -> None:
    await crashed(world, line("a", "b"), at="b")
    process = await world.process()
    await process.resume()
    assert [call.fidelity for call in world.ledger.calls] == ["compact"] * 3


ASKING = """digraph asking {
  graph [default_fidelity=full, default_thread_id=talk]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  a [prompt=p]
  ask [shape=hexagon]
  b [prompt=p]
  start -> a -> ask -> b -> exit
}"""


async def test_a_process_that_answers_its_own_question_has_its_sessions_still(world: World) -> None:
    """R6: only what is really gone is made up for. K12."""
    process = await world.process()
    assert (await process.start(ASKING)).status is RunStatus.WAITING
    await process.engine.answer("run", "b", by="pat")
    assert [(call.fidelity, call.thread) for call in world.ledger.calls] == [("full", "talk")] * 2


async def test_a_process_that_answers_anothers_question_has_not(world: World) -> None:
    """R6, C11: the thread is the same, its conversation is not."""
    await (await world.process()).start(ASKING)
    await (await world.process()).engine.answer("run", "b", by="pat")
    assert [(call.fidelity, call.thread) for call in world.ledger.calls] == [
        ("full", "talk"),
        ("summary:high", "talk"),
    ]


async def test_what_is_gone_is_known_from_the_log_alone(world: World) -> None:
    """The worker that held the run last is part of its state, in a snapshot too."""
    process = await world.process()
    await process.start(ASKING)
    folded = await process.load()
    assert (folded.run.worker, folded.run.last_worker) == (None, process.store.leases.owner)
    assert decode_run(encode_run(folded.run)) == folded.run

"""Questions for people: stored before anybody is asked, answered once, whoever asks and whoever answers."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from onward.engine.control.requests import AutoApprove, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused
from onward.model.gate import GateDecided, GateOpened
from onward.model.run import Gate, Run, RunStatus
from onward.store.port.leases import Lease
from onward.store.port.log import Controlled, Decide, RunLog, Write
from tests.conformance.faults import Around, Died, Fault, FaultyStore
from tests.test_pause import GATED
from tests.world import World, until


async def test_a_question_survives_the_process_that_asked_it(world: World) -> None:
    """K13: the same gate with the same id, answered in another process after a crash."""
    process = await world.process()
    asked = await process.start(GATED)
    assert asked.status is RunStatus.WAITING
    await process.die()
    other = await world.process()
    gate = (await other.load()).run.gates["ask#1"]
    assert (gate.gate, gate.text, gate.decided) == ("ask#1", "Ship it?", None)
    assert [(choice.key, choice.label, choice.to) for choice in gate.choices] == [
        ("Y", "[Y] yes", "exit"),
        ("N", "[N] no", "work"),
    ]
    answered = await other.engine.answer("run", "y", by="ann")
    assert answered.run.status is RunStatus.COMPLETED
    assert (answered.run.context["human.gate.selected"], world.ledger.steps) == ("Y", ["work#1"])


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
async def test_a_crash_while_the_question_is_stored_leaves_one_question(world: World, fault: Fault) -> None:
    """K13: whether it was stored or not, the next process finds or asks the same one."""
    process = await world.process()
    process.store.fail(fault, within=2)
    with pytest.raises(Died):
        await process.start(GATED)
    await process.die()
    other = await world.process()
    run = (await other.load()).run
    if run.status is not RunStatus.WAITING:
        run = await other.resume()
    assert list(run.gates) == ["ask#1"]
    assert sum(isinstance(event, GateOpened) for event in await other.events()) == 1


async def test_a_question_is_answered_once(world: World) -> None:
    """K13: the first answer is the answer; the same again changes nothing, and another is refused."""
    process = await world.process()
    await process.start(GATED)
    await process.engine.answer("run", "no", by="ann", run=False)
    before = await process.log()
    again = await process.engine.answer("run", "N", by="bob", run=False)
    assert again.run.gates["ask#1"].by == "ann"
    with pytest.raises(Refused) as refused:
        await process.engine.answer("run", "yes", by="bob", run=False)
    assert (refused.value.code, refused.value.details) == ("gate_decided", {"choice": "N", "by": "ann"})
    assert await process.log() == before


async def test_of_rival_answers_the_first_wins(world: World) -> None:
    """K13: decided inside the database, so that the loser is told truthfully. H3."""
    processes = [await world.process() for _ in range(4)]
    await processes[0].start(GATED)
    answers = await asyncio.gather(
        *(
            processes[n % 4].engine.answer("run", "yes" if n % 2 else "no", by=f"caller {n}", run=False)
            for n in range(12)
        ),
        return_exceptions=True,
    )
    decided = [event for event in await processes[0].events() if isinstance(event, GateDecided)]
    assert len(decided) == 1
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert len(refused) == 6
    assert {refusal.details["by"] for refusal in refused} == {decided[0].by}


async def test_an_answer_and_the_claim_are_one_append(world: World) -> None:
    """A foreground answer goes on in the same transaction: nobody can come between. H7."""
    process = await world.process()
    await process.start(GATED)
    before = (await process.load()).position.seq
    await process.engine.answer("run", "yes", by="ann")
    assert (await process.kinds())[before : before + 2] == ["GateDecided", "RunClaimed"]
    assert process.store.calls.count("log.control") == 1


async def test_an_answer_alone_makes_the_run_claimable(world: World) -> None:
    """Only a claim makes a run running: the decision queues it, with its wake time. H6."""
    process = await world.process()
    await process.start(GATED)
    decided = (await process.engine.answer("run", "yes", by="ann", run=False)).run
    assert (decided.status, decided.worker) == (RunStatus.QUEUED, None)
    assert decided.wake_at_us == decided.updated_at_us
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED


class Holding(Around[RunLog]):
    """A store that keeps its callers waiting before they may write, as a busy database does."""

    def __init__(self, part: RunLog, store: FaultyStore) -> None:
        super().__init__(part, store)
        self.may_request, self.may_append, self.asking = asyncio.Event(), asyncio.Event(), 0
        self.may_append.set()

    async def append(self, write: Write, lease: Lease) -> None:
        await self.may_append.wait()
        await self.part.append(write, lease)

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        self.asking += 1
        await self.may_request.wait()
        return await self.part.control(run_id, since=since, append_id=append_id, decide=decide)


async def test_an_answer_given_by_several_at_once_is_driven_once(world: World) -> None:
    """All in one process, all having seen the run wait: one drives it, the others are told how it stands."""
    process = await world.process(wrap=partial(FaultyStore, log=Holding))
    store = process.store.log
    assert isinstance(store, Holding)
    await process.start(GATED)
    store.may_append.clear()
    running = {asyncio.create_task(process.engine.answer("run", "no", by="ann")) for _ in range(4)}
    await until(lambda: store.asking == 4)
    store.may_request.set()
    while len(running) > 1:
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result().run.status for task in done} == {RunStatus.RUNNING}
    store.may_append.set()
    assert (await running.pop()).run.status is RunStatus.WAITING
    assert world.ledger.steps == ["work#1", "work#2"]


async def test_an_answer_that_is_not_offered_is_refused_with_what_is(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    with pytest.raises(InvalidInput, match=r"'maybe'; choose one of: Y \(\[Y\] yes\), N \(\[N\] no\)"):
        await process.engine.answer("run", "maybe", by="ann")


async def test_a_question_nobody_asked_cannot_be_answered(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    await process.engine.answer("run", "yes", by="ann")
    with pytest.raises(Refused) as refused:
        await process.engine.answer("run", "yes", by="ann")
    assert refused.value.code == "no_open_gate"


async def test_a_final_status_withdraws_what_is_still_asked(world: World) -> None:
    """In the same append, so that no answer can come to a run that has ended. H11."""
    process = await world.process()
    await process.start(GATED)
    run = (await process.engine.cancel("run", by="ann")).run
    assert (await process.kinds())[-2:] == ["GateWithdrawn", "RunCancelled"]
    assert run.gates == {}


async def test_an_interviewer_answers_until_the_run_stops(world: World) -> None:
    process = await world.process()
    folded = await process.engine.start(process.pipeline(GATED), _start(), None)
    done = await process.engine.attend(folded, AutoApprove(), StopSwitch())
    assert done.run.status is RunStatus.COMPLETED
    (decided,) = [event for event in await process.events() if isinstance(event, GateDecided)]
    assert decided.by == "auto"


async def test_an_interviewer_can_leave_a_question_open(world: World) -> None:
    class Undecided:
        name = "nobody"

        async def ask(self, run: Run, gate: Gate) -> None:
            return None

    process = await world.process()
    folded = await process.engine.start(process.pipeline(GATED), _start(), None)
    assert (await process.engine.attend(folded, Undecided(), StopSwitch())) is folded


def _start() -> StartRequest:
    return StartRequest(run_id="run")

"""Deadlines, verdicts and rivals in real databases: one decision, by whoever is first and in time."""

from __future__ import annotations

import asyncio

import pytest

from onward.engine.control.requests import CallbackInterviewer, QueueInterviewer, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import Refused
from onward.model.gate import Answer, GateDecided
from onward.model.run import Gate, Run, RunStatus
from onward.testing.clock import ManualClock
from tests.world import Process, World, until

ASK = """digraph ask {
  start [shape=Mdiamond]; exit [shape=Msquare]; work [prompt="do it"]; undo [prompt="undo it"]
  ask [shape=hexagon, label="Ship it?" ATTRS]
  start -> ask; work -> exit; undo -> exit
  ask -> work [label="[A] Approve"]
  ask -> undo [label="[R] Reject"]
}"""
COLOURS = ASK.replace("[A] Approve", "Red").replace("[R] Reject", "Blue")
BOTH = """digraph both {
  start [shape=Mdiamond]; exit [shape=Msquare]; fan [shape=component]; join [shape=tripleoctagon]
  left [shape=hexagon, label="Left?" LEFT]; right [shape=hexagon, label="Right?" RIGHT]
  start -> fan; fan -> left; fan -> right; join -> exit
  left -> join [label=Go]; right -> join [label=Go]
}"""
REVIEWED = """digraph reviewed {
  start [shape=Mdiamond]; exit [shape=Msquare]
  work [prompt="do it"]; ask [shape=hexagon, label="Ship it?"]
  start -> work -> ask; ask -> exit [label="[Y] Yes"]
}"""
TIMED = ", human.timeout=10s, human.default_choice=undo"


def asking(attrs: str = "", source: str = ASK) -> str:
    return source.replace("ATTRS", attrs)


def decisions(events: list[object]) -> list[GateDecided]:
    return [event for event in events if isinstance(event, GateDecided)]


async def decided(process: Process) -> list[GateDecided]:
    return decisions([*await process.events()])


# -- rivals --------------------------------------------------------------------------------------------


async def test_of_approve_and_reject_at_once_one_wins_and_the_other_is_told(world: World) -> None:
    """K13, B4-8: decided inside the database, on every store."""
    processes = [await world.process() for _ in range(4)]
    await processes[0].start(asking())
    said = [Answer.approve() if n % 2 else Answer.reject() for n in range(12)]
    answers = await asyncio.gather(
        *(
            processes[n % 4].engine.answer("run", answer, by=f"caller {n}", run=False)
            for n, answer in enumerate(said)
        ),
        return_exceptions=True,
    )
    [won] = await decided(processes[0])
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert [refusal.code for refusal in refused] == ["gate_decided"] * 6
    assert {refusal.details["by"] for refusal in refused} == {won.by}
    assert (await processes[1].resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["work#1" if won.choice.key == "A" else "undo#1"]
    assert await processes[0].is_sound()


async def test_a_rejection_that_no_edge_takes_ends_the_run_and_cannot_be_resumed(world: World) -> None:
    """B4-12, C18."""
    process = await world.process()
    await process.start(asking(source=COLOURS))
    run = (await process.engine.answer("run", Answer.reject("neither"), by="ann")).run
    assert (run.status, run.reason, run.detail) == (
        RunStatus.FAILED,
        "rejected",
        "ann rejected ask#1: neither",
    )
    shown = await process.shown()
    assert (shown["reason"], shown["recoverable"], shown["wake_at"]) == ("rejected", False, None)
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.code == "invalid_state"
    assert await process.is_sound()


async def test_a_rejection_survives_the_process_that_took_it(world: World) -> None:
    process = await world.process()
    await process.start(asking(source=COLOURS))
    await process.engine.answer("run", Answer.reject(), by="ann", run=False)
    await process.die()
    run = await (await world.process()).resume()
    assert (run.status, run.reason) == (RunStatus.FAILED, "rejected")


async def test_the_log_has_no_gap_at_a_gate_and_a_rejected_run_keeps_all_of_it(world: World) -> None:
    """B4-9: one process asks, another hears the answer, and the run ends once."""
    process = await world.process()
    await process.start(REVIEWED)
    before = await process.log()
    await process.die()
    other = await world.process()
    await other.engine.answer("run", Answer.reject("no"), by="ann")
    after = await other.log()
    assert after[: len(before)] == before
    assert [record.seq for record in after] == list(range(1, len(after) + 1))
    assert [record.kind for record in after].count("RunFailed") == 1
    assert "work#1" in await other.completed()
    assert await other.is_sound()


async def test_a_rejected_branch_leaves_the_others_alone(world: World) -> None:
    process = await world.process()
    await process.start(BOTH.replace("LEFT", "").replace("RIGHT", ""))
    await process.engine.answer("run", Answer.reject(), by="ann", gate="fan#1.left/left#1")
    run = (await process.engine.answer("run", Answer.approve(), by="ann")).run
    assert run.status is RunStatus.COMPLETED
    results = run.context["parallel.results"]
    assert [(result["id"], result["status"]) for result in results] == [
        ("left", "fail"),
        ("right", "success"),
    ]
    assert results[0]["failure_reason"] == "ann rejected fan#1.left/left#1"


# -- deadlines -----------------------------------------------------------------------------------------


async def test_the_wake_time_of_a_waiting_run_is_its_first_deadline(world: World) -> None:
    """Design §3: stop, release and wake time are one append, and the row says so in every database."""
    process = await world.process()
    source = BOTH.replace("LEFT", ", human.timeout=30s, human.default_choice=join")
    run = await process.start(source.replace("RIGHT", ", human.timeout=20s, human.on_timeout=reject"))
    opened = run.gates["fan#1.right/right#1"].opened_at_us
    assert (run.status, run.wake_at_us) == (RunStatus.WAITING, opened + 20_000_000)
    [listed] = await process.store.runs.find("run")
    assert (listed.row.wake_at_us, listed.holder) == (run.wake_at_us, None)
    assert (await process.kinds())[-3:] == ["GateOpened", "GateOpened", "RunWaiting"]
    assert await process.is_sound()


async def test_another_process_goes_on_when_the_deadline_has_come(world: World) -> None:
    """B0-10: the deadline is stored, so it does not die with whoever asked."""
    clock = ManualClock(autojump=False)
    process = await world.process(clock=clock)
    await process.start(asking(TIMED))
    await process.die()
    other = await world.process(clock=clock)
    with pytest.raises(Refused, match="waits for an answer at ask#1"):
        await other.resume()
    clock.advance(10)
    assert (await other.resume()).status is RunStatus.COMPLETED
    [late] = await decided(other)
    assert (late.by, late.expired, late.choice.to) == ("deadline", True, "undo")
    assert world.ledger.steps == ["undo#1"]


async def test_of_an_answer_and_a_deadline_the_first_wins(world: World) -> None:
    clock = ManualClock(autojump=False)
    process, other = await world.process(clock=clock), await world.process(clock=clock)
    await process.start(asking(TIMED))
    clock.advance(9.999999)
    await process.engine.answer("run", "A", by="ann", run=False)
    clock.advance(10)
    assert (await other.resume()).status is RunStatus.COMPLETED
    assert [event.by for event in await decided(other)] == ["ann"]


async def test_an_answer_that_comes_too_late_changes_nothing(world: World) -> None:
    clock = ManualClock(autojump=False)
    process = await world.process(clock=clock)
    await process.start(asking(TIMED))
    clock.advance(10)
    before = await process.log()
    with pytest.raises(Refused) as refused:
        await process.engine.answer("run", "A", by="ann")
    assert (refused.value.code, await process.log()) == ("gate_expired", before)


async def test_of_many_who_find_a_deadline_one_applies_it(world: World) -> None:
    clock = ManualClock(autojump=False)
    processes = [await world.process(clock=clock) for _ in range(4)]
    await processes[0].start(asking(TIMED))
    clock.advance(10)
    tried = await asyncio.gather(*(process.resume() for process in processes), return_exceptions=True)
    assert RunStatus.COMPLETED in [run.status for run in tried if isinstance(run, Run)]
    assert {error.code for error in tried if isinstance(error, Refused)} <= {"occupied", "invalid_state"}
    assert len(await decided(processes[0])) == 1
    assert world.ledger.steps == ["undo#1"]


class Silent:
    """Sits there and says nothing, and notes what it is told."""

    name = "silent"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.told: list[str] = []
        self.gave_up = 0

    async def ask(self, run: Run, gate: Gate) -> None:
        self.asked.append(gate.gate)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.gave_up += 1
            raise

    async def inform(self, message: str, stage: str) -> None:
        self.told.append(f"{stage}: {message}")


async def test_whoever_is_asked_is_asked_no_longer_than_the_deadline(world: World) -> None:
    process, nobody = await world.process(), Silent()
    done = await _attended(process, asking(TIMED), nobody)
    assert (done.status, nobody.asked, nobody.gave_up) == (RunStatus.COMPLETED, ["ask#1"], 1)
    assert world.ledger.steps == ["undo#1"]


async def test_the_deadline_of_one_gate_does_not_wait_for_the_answer_to_another(world: World) -> None:
    process, nobody = await world.process(), Silent()
    source = BOTH.replace("LEFT", "").replace("RIGHT", ", human.timeout=5s, human.default_choice=join")
    attending = asyncio.create_task(_attended(process, source, nobody))
    await until(lambda: len(nobody.asked) == 2)
    assert nobody.asked == ["fan#1.left/left#1"] * 2
    assert [event.gate for event in await decided(process)] == ["fan#1.right/right#1"]
    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)
    assert nobody.gave_up == 2


async def test_whoever_is_asked_is_reminded_until_the_answer_comes(world: World) -> None:
    process, nobody = await world.process(), Silent()
    attrs = ", human.remind=3s, human.timeout=10s, human.on_timeout=reject"
    done = await _attended(process, asking(attrs), nobody)
    assert done.status is RunStatus.COMPLETED
    assert nobody.told == ["ask: ask#1 still waits for an answer: Ship it?"] * 3


async def test_reminders_need_no_deadline_and_end_with_the_answer(world: World) -> None:
    process = await world.process()

    class Slow(Silent):
        async def ask(self, run: Run, gate: Gate) -> None:
            await until(lambda: len(self.told) == 2)
            return None

    slow = Slow()
    done = await _attended(process, asking(", human.remind=3s"), slow)
    assert (done.status, len(slow.told)) == (RunStatus.WAITING, 2)


async def test_an_answer_that_crosses_the_deadline_gives_way_to_its_rule(world: World) -> None:
    """Said in time, but the time was over when it was written."""
    clock = ManualClock(autojump=False)
    process = await world.process(clock=clock)

    async def slowly(run: Run, gate: Gate) -> str:
        clock.advance(10)
        return "A"

    done = await _attended(process, asking(TIMED), CallbackInterviewer("slow", slowly))
    assert done.status is RunStatus.COMPLETED
    assert [event.by for event in await decided(process)] == ["deadline"]


async def test_whoever_was_asked_is_told_that_somebody_else_answered(world: World) -> None:
    process, other = await world.process(clock=ManualClock(autojump=False)), await world.process()

    async def slowly(run: Run, gate: Gate) -> str:
        await other.engine.answer("run", "R", by="ann", run=False)
        return "A"

    with pytest.raises(Refused, match=r"already decided: '\[R\] Reject' by ann") as refused:
        await _attended(process, asking(), CallbackInterviewer("slow", slowly))
    assert refused.value.code == "gate_decided"


async def test_a_question_ends_when_somebody_else_answers_it(world: World) -> None:
    clock, nobody = ManualClock(autojump=False), Silent()
    process, other = await world.process(clock=clock), await world.process()
    attending = asyncio.create_task(_attended(process, asking(), nobody))
    await clock.until_waiting(1)
    await other.engine.answer("run", "R", by="ann", run=False)
    clock.advance(1)
    left = await attending
    assert (left.status, nobody.asked, nobody.gave_up) == (RunStatus.QUEUED, ["ask#1"], 1)
    assert nobody.told == ["ask: ask#1 was decided elsewhere: '[R] Reject' by ann"]


async def test_an_answer_to_another_question_does_not_end_this_one(world: World) -> None:
    clock, nobody = ManualClock(autojump=False), Silent()
    process, other = await world.process(clock=clock), await world.process()
    both = BOTH.replace("LEFT", ", human.remind=2s").replace("RIGHT", "")
    attending = asyncio.create_task(_attended(process, both, nobody))
    await clock.until_waiting(1)
    await other.engine.answer("run", "Go", by="ann", gate="fan#1.right/right#1")
    for _ in range(2):
        await clock.until_waiting(1)
        clock.advance(1)
    await until(lambda: bool(nobody.told))
    assert (nobody.asked, nobody.gave_up) == (["fan#1.left/left#1"], 0)
    assert nobody.told == ["left: fan#1.left/left#1 still waits for an answer: Left?"]
    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)


async def test_a_question_that_is_skipped_stays_open_and_the_next_is_asked(world: World) -> None:
    process = await world.process()
    answers = QueueInterviewer([Answer.skip(), "Go"])
    run = await _attended(process, BOTH.replace("LEFT", "").replace("RIGHT", ""), answers)
    assert run.status is RunStatus.WAITING
    assert [name for name, gate in run.gates.items() if gate.decided is None] == ["fan#1.left/left#1"]


async def test_a_deadline_that_somebody_else_applied_is_no_trouble(world: World) -> None:
    """Two attend; at the deadline one goes on, and the other sees that it is out of its hands."""
    clock = ManualClock(autojump=False)
    process, other = await world.process(clock=clock), await world.process(clock=clock)
    folded = await process.engine.start(process.pipeline(asking(TIMED)), StartRequest(run_id="run"))
    attending = [
        asyncio.create_task(one.engine.attend(folded, Silent(), StopSwitch())) for one in (process, other)
    ]
    await clock.until_waiting(2)
    clock.advance(10)
    ended = await asyncio.gather(*attending)
    assert RunStatus.COMPLETED in {one.run.status for one in ended}
    assert world.ledger.steps == ["undo#1"]
    assert len(await decided(process)) == 1


async def _attended(
    process: Process, source: str, interviewer: Silent | CallbackInterviewer | QueueInterviewer
) -> Run:
    folded = await process.engine.start(process.pipeline(source), StartRequest(run_id="run"))
    return (await process.engine.attend(folded, interviewer, StopSwitch())).run

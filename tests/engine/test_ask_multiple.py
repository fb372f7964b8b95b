"""Several open gates of a run, put to somebody at once (dialect, human in the loop: `ask_multiple`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onward import Answer, Gate, QueueInterviewer, RecordingInterviewer, Run, RunStatus
from onward.engine.control.requests import Interviewer, Said
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput
from tests.world import Process, World

BOTH = """digraph both {
  start [shape=Mdiamond]; exit [shape=Msquare]; fan [shape=component]; join [shape=tripleoctagon]
  left [shape=hexagon, label="Left?" ATTRS]; right [shape=hexagon, label="Right?"]
  last [shape=hexagon, label="Last?"]
  start -> fan; fan -> left; fan -> right; join -> last
  left -> join [label="[Y] Yes"]; right -> join [label="[Y] Yes"]; right -> join [label="[N] No"]
  last -> exit [label="[Y] Yes"]
}"""


class Panel:
    """Takes as many questions at once as there are answers prepared for that round."""

    name = "panel"

    def __init__(self, *rounds: Sequence[Said]) -> None:
        self.rounds, self.told = list(rounds), list[str]()
        self.asked: list[list[str]] = []

    async def ask(self, run: Run, gate: Gate) -> Said:
        self.asked.append([gate.node])
        return "Y"

    async def ask_multiple(self, run: Run, gates: Sequence[Gate]) -> Sequence[Said]:
        self.asked.append([gate.node for gate in gates])
        return self.rounds.pop(0)

    async def inform(self, message: str, stage: str) -> None:
        self.told.append(stage)


async def attended(process: Process, interviewer: Interviewer, attrs: str = "") -> Run:
    await process.start(BOTH.replace("ATTRS", attrs))
    return (await process.engine.attend(await process.load(), interviewer, StopSwitch())).run


async def decisions(process: Process) -> dict[str, str]:
    log = await process.events()
    return {event.gate: event.choice.label for event in log if event.kind == "GateDecided"}  # type: ignore[attr-defined]


async def test_several_open_gates_are_asked_together_and_one_alone(world: World) -> None:
    process, panel = await world.process(), Panel([True, "N"])
    assert (await attended(process, panel)).status is RunStatus.COMPLETED
    assert panel.asked == [["left", "right"], ["last"]]
    assert list((await decisions(process)).values()) == ["[Y] Yes", "[N] No", "[Y] Yes"]


async def test_what_was_left_out_is_asked_again_and_what_was_skipped_is_not(world: World) -> None:
    process, panel = await world.process(), Panel(["Y"])
    assert (await attended(process, panel)).status is RunStatus.COMPLETED
    assert panel.asked == [["left", "right"], ["right"], ["last"]]


async def test_a_skipped_gate_stays_open(world: World) -> None:
    process, panel = await world.process(), Panel([None, "Y"])
    assert (await attended(process, panel)).status is RunStatus.WAITING
    assert panel.asked == [["left", "right"]]
    assert list(await decisions(process)) == ["fan#1.right/right#1"]


async def test_no_answer_at_all_leaves_the_first_question_open(world: World) -> None:
    process, panel = await world.process(), Panel([])
    assert (await attended(process, panel)).status is RunStatus.WAITING
    assert panel.asked == [["left", "right"], ["right"]]


@pytest.mark.parametrize("said", ["YY", ["Y", "Y", "Y"]])
async def test_what_is_not_an_answer_to_each_is_refused_with_a_sentence(
    world: World, said: Sequence[Said]
) -> None:
    with pytest.raises(
        InvalidInput, match="received 2 questions; ask_multiple must return a list with at most"
    ):
        await attended(await world.process(), Panel(said))


async def test_a_recording_asks_as_the_one_that_it_records_would(world: World) -> None:
    process, record = await world.process(), RecordingInterviewer(Panel(["Y", "N"]))
    assert (await attended(process, record)).status is RunStatus.COMPLETED
    assert [(gate.node, answer.choice) for gate, answer in record.recorded] == [
        ("left", "Y"),
        ("right", "N"),
        ("last", "Y"),
    ]
    one_by_one = RecordingInterviewer(QueueInterviewer(["Y"]))
    other = await world.process()
    await other.start(BOTH.replace("ATTRS", ""), "other")
    await other.engine.attend(await other.load("other"), one_by_one, StopSwitch())
    assert [answer for _, answer in one_by_one.recorded] == [Answer("Y"), Answer.skip()]


async def test_those_asked_together_are_reminded_of_and_a_deadline_ends_the_asking(world: World) -> None:
    class Silent(Panel):
        async def ask_multiple(self, run: Run, gates: Sequence[Gate]) -> Sequence[Said]:
            self.asked.append([gate.node for gate in gates])
            await asyncio.Event().wait()
            return ()

    process, silent = await world.process(), Silent()
    attrs = ", human.remind=3s, human.timeout=10s, human.default_choice=join"
    assert (await attended(process, silent, attrs)).status is RunStatus.COMPLETED
    assert silent.asked == [["left", "right"], ["right"], ["last"]]
    assert silent.told == ["left"] * 3

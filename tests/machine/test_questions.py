"""Human gates: asked once, kept until answered, and followed exactly."""

from __future__ import annotations

from onward.machine.decide.resume import ResumeRequest, decide_resume
from onward.machine.plan.action import Stop
from onward.model.events import Event, RunClaimed, RunPaused, RunWaiting, StepFinished
from onward.model.gate import GateOpened
from onward.model.run import RunStatus
from tests.machine.play import ALIVE, NO_ONE, Play, define

ASK = (
    'g [shape=hexagon, label="Ship it?"]; b [type=tool]; start -> g; '
    'g -> b [label="[Y] Yes"]; g -> exit [label="No"]; b -> exit'
)


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_human_gate_parks_the_run_with_its_question() -> None:
    """P12, D41: one choice per edge; the run waits and holds no lease."""
    play = Play(ASK)
    assert kinds(play.events)[-3:] == ["StepFinished", "GateOpened", "RunWaiting"]
    opened = play.events[-2]
    assert isinstance(opened, GateOpened)
    assert (opened.gate, opened.text) == ("g#1", "Ship it?")
    assert [(choice.key, choice.label, choice.to) for choice in opened.choices] == [
        ("Y", "[Y] Yes", "b"),
        ("N", "No", "exit"),
    ]
    assert (play.run.status, play.run.worker) == (RunStatus.WAITING, None)


def test_a_decided_gate_is_a_finished_step_that_leads_where_the_choice_says() -> None:
    """C7: the chosen target decides; key, label and text are recorded."""
    play = Play(ASK)
    play.answer("y", text="looks good")
    assert play.run.status is RunStatus.QUEUED
    play.claim()
    assert play.started.node == "b"
    finished = next(e for e in play.events if isinstance(e, StepFinished) and e.node == "g")
    assert (finished.attempt, finished.outcome.suggested_next_ids) == (1, ("b",))
    assert finished.next is not None
    assert play.definition.graph.edges[finished.next.edge or 0].target == "b"
    context = play.run.context
    assert (context["human.gate.selected"], context["human.gate.label"], context["human.gate.text"]) == (
        "Y",
        "[Y] Yes",
        "looks good",
    )
    assert context["preferred_label"] == "[Y] Yes"


def test_an_answer_without_a_text_leaves_none_behind() -> None:
    play = Play(ASK)
    play.answer("N")
    play.claim()
    assert "human.gate.text" not in play.run.context
    assert play.run.status is RunStatus.COMPLETED


def test_an_open_gate_survives_a_pause_and_a_crash_with_its_id() -> None:
    """K13: the same question is asked, not another one."""
    play = Play(ASK)
    play.pause(NO_ONE)
    play.resume(NO_ONE)
    assert (play.run.status, list(play.run.gates)) == (RunStatus.WAITING, ["g#1"])
    assert kinds(play.events).count("GateOpened") == 1


def test_a_process_that_must_stop_leaves_a_run_at_a_gate_waiting() -> None:
    """Design §6: at a gate the run just stays waiting."""
    play = Play(ASK)
    play.pause(NO_ONE)
    play.write(*resumed(play))
    assert play.go(stop_reason="signal") == Stop((RunWaiting(),))


def test_a_process_that_must_stop_does_not_go_on_behind_a_decided_gate() -> None:
    play = Play(ASK)
    play.answer("Y")
    play.write(RunClaimed(token=play.run.token + 1, worker="second"))
    assert play.go(stop_reason="signal") == Stop((RunPaused(reason="signal"),))
    assert (list(play.run.gates), play.path) == (["g#1"], ["start"])
    play.resume(NO_ONE)
    assert play.started.node == "b"


def test_a_pause_is_honoured_at_an_open_gate() -> None:
    play = Play(ASK)
    play.pause(NO_ONE)
    play.write(*resumed(play))
    play.pause(ALIVE)
    assert play.go() == Stop((RunPaused(reason="operator", detail="asked by pat"),))


def test_a_gate_without_edges_stops_the_run() -> None:
    play = Play('a [type=tool]; g [shape=hexagon]; start -> a -> g; a -> exit [condition="outcome=fail"]')
    play.succeed()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert "human gate g has no edges" in play.run.detail


def test_a_gate_whose_edge_is_gone_still_leads_where_its_choice_said() -> None:
    play = Play(ASK)
    play.answer("Y")
    play.definition = define("g [shape=hexagon]; b [type=tool]; start -> g -> exit; start -> b -> exit")
    play.claim()
    assert (play.started.node, play.run.root.edge) == ("b", None)


def test_every_visit_of_a_gate_asks_anew() -> None:
    play = Play('g [shape=hexagon]; start -> g; g -> g [label="Again"]; g -> exit [label="Done"]')
    play.answer("again")
    play.claim()
    assert list(play.run.gates) == ["g#2"]
    play.answer("done")
    play.claim()
    assert play.run.status is RunStatus.COMPLETED


def resumed(play: Play) -> list[Event]:
    """What a resume writes, without what follows from it."""
    return list(decide_resume(play.definition, play.run, NO_ONE, ResumeRequest("pat")))

"""How steps stand on the page of a run: the log and the fold together."""

from __future__ import annotations

from onward.model.events import RunForked
from onward.read.log import Projection
from onward.read.view import view_steps
from onward.replies.steps import StepShown
from tests.machine.play import Play

FAN = """fan [shape=component]; join [shape=tripleoctagon]; ask [shape=hexagon]; b [prompt="do"]
  start -> fan; fan -> ask; fan -> b; b -> join; join -> exit
  ask -> join [label="[Y] Yes"]; ask -> join [label="[N] No"]"""
FORKED = RunForked(parent="p", parent_seq=6, parent_hash="h", by="me")


def viewed(play: Play, *, is_held: bool) -> list[StepShown]:
    log = Projection()
    for event, at_us, _ in play.log:
        log.apply(event, at_us=at_us)
    return view_steps(log, play.run, is_held=is_held)


def standing(play: Play, *, is_held: bool) -> dict[str, str]:
    return {step["step"]: step["status"] for step in viewed(play, is_held=is_held)}


def test_a_fan_out_stands_as_its_branches_let_it() -> None:
    play = Play(FAN)
    running = {
        "start#1": "success",
        "fan#1": "running",
        "fan#1.ask/ask#1": "waiting",
        "fan#1.b/b#1": "running",
    }
    assert standing(play, is_held=True) == running
    assert standing(play, is_held=False) == {**running, "fan#1": "interrupted", "fan#1.b/b#1": "interrupted"}


def test_a_fork_asks_the_open_questions_of_its_branches_anew() -> None:
    """They are not left to the other run: this one waits for its own answers."""
    play = Play(FAN)
    play.write(FORKED)
    found = standing(play, is_held=False)
    assert (found["fan#1.ask/ask#1"], found["fan#1.b/b#1"]) == ("waiting", "interrupted")
    assert {step["reason"] for step in viewed(play, is_held=False)} == {""}

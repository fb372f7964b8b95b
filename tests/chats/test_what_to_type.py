"""A stopped run is told with a command that is not refused: in notifications and in its chat."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from onward.chats.decide import stop_words
from onward.errors import Refused
from onward.machine.fold.rows import notifications
from onward.model.events import AttemptInterrupted
from onward.model.row import Facts
from onward.model.run import Run
from tests.machine.play import NO_ONE, Play

ONCE = "a [type=tool, repeatable=false]; start -> a -> exit"
STUCK = 'a [type=tool]; start -> a; a -> exit [condition="context.done=yes"]'
PLAIN = "a [type=tool]; start -> a -> exit"
DECIDE = "--retry|--skip|--continue|--abort"
CUT_OFF = [AttemptInterrupted(step="a#1", attempt=1, why="stopped")]


def paused_in_doubt() -> Play:
    play = Play(ONCE)
    play.go(CUT_OFF, stop_reason="signal")
    return play


def in_doubt() -> Play:
    play = Play(ONCE)
    play.claim()
    return play


def stuck() -> Play:
    play = Play(STUCK)
    play.succeed()
    return play


def paused() -> Play:
    play = Play(PLAIN)
    play.go(CUT_OFF, stop_reason="signal")
    return play


def failed() -> Play:
    play = Play(PLAIN)
    play.fail()
    return play


def notified(play: Play) -> str | None:
    """The command in the notification about the stop."""
    told = notifications(play.events, play.run, after=0, at_us=0)
    assert told is not None
    *_, last = told()
    return msgspec.json.decode(last.body, type=Facts).next


def in_chat(run: Run) -> str:
    return stop_words(run) or ""


@pytest.mark.parametrize(
    ("stop", "flags"),
    [(paused_in_doubt, DECIDE), (in_doubt, DECIDE), (stuck, "--accept-changes|--retry|--from NODE")],
)
def test_a_stop_that_needs_a_decision_is_told_with_the_flags_that_decide(
    stop: Callable[[], Play], flags: str
) -> None:
    play = stop()
    assert notified(play) == f"onward resume {play.run.id} {flags}"
    assert in_chat(play.run).endswith(f"`onward resume {play.run.id} {flags}`.")
    with pytest.raises(Refused):
        play.resume(NO_ONE)


@pytest.mark.parametrize(
    ("stop", "words"),
    [(paused, "Send any message here to continue."), (failed, "`onward resume r` tries again.")],
)
def test_any_other_stop_is_told_with_a_plain_resume(stop: Callable[[], Play], words: str) -> None:
    play = stop()
    assert notified(play) == f"onward resume {play.run.id}"
    assert in_chat(play.run).endswith(words)
    play.resume(NO_ONE)

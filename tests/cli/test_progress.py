"""Progress on a terminal: its colours say what its words say."""

from __future__ import annotations

import pytest

from onward.cli.output import Output
from onward.cli.print.live import LiveProgress
from onward.model.events import StepStatus
from onward.model.result import Result
from tests.machine.play import Play

GREEN, RED, YELLOW = "\x1b[32m", "\x1b[31m", "\x1b[33m"


@pytest.mark.parametrize(
    ("result", "words", "colour"),
    [
        (Result.success(), "success", GREEN),
        (Result.fail("broken", retryable=False), "fail", RED),
        (Result(status=StepStatus.PARTIAL_SUCCESS), "partial_success", YELLOW),
    ],
)
def test_a_finished_step_has_the_colour_of_its_outcome(
    result: Result,
    words: str,
    colour: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    play = Play('a [prompt="do"]; start -> a; a -> exit [condition="outcome=fail"]; a -> exit')
    before = len(play.log)
    play.result(result)
    LiveProgress(Output()).observe(play.run, play.events[before:])
    printed = capsys.readouterr().out
    assert f"{colour}  finished  a#1  {words}" in printed

"""Progress of a run that this process executes: lines, or a display that updates in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onward.cli.print.narrate import Narrator, printed
from onward.cli.print.output import Output
from onward.model.events import Event
from onward.model.run import Run


class Progress(Protocol):
    """Shows what the engine observes."""

    @property
    def narrator(self) -> Narrator:
        """Turns events into lines."""
        ...

    @property
    def is_at_work(self) -> bool:
        """Whether a step has started and has not ended."""
        ...

    def observe(self, run: Run, events: Sequence[Event]) -> None:
        """Show what was just written."""
        ...

    def show(self, step: str, stream: str, text: str) -> None:
        """Show a line that a command of a step has just printed."""
        ...

    def close(self) -> None:
        """Leave the screen as plain text."""
        ...


class LineProgress:
    """A line per event: for pipes, files and programs."""

    def __init__(self, out: Output) -> None:
        self.narrator = Narrator()
        self.is_at_work = False
        self._out = out

    def observe(self, run: Run, events: Sequence[Event]) -> None:
        self.is_at_work = is_at_work(run)
        for line in self.narrator.lines(run, events):
            self._out.say(line.text)

    def show(self, step: str, stream: str, text: str) -> None:
        self._out.say(printed(step, text).text)

    def close(self) -> None:
        self.is_at_work = False


def is_at_work(run: Run) -> bool:
    """Whether the run is held and a step is open."""
    return bool(run.open_steps) and run.worker is not None


def make_progress(out: Output) -> Progress:
    """The progress that suits the output. Only a terminal pays for importing the live display."""
    if out.is_live:
        from onward.cli.print.live import LiveProgress, can_move

        if can_move():
            return LiveProgress(out)
    return LineProgress(out)

"""Progress on a terminal: finished steps stay, running ones tick below them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from onward.cli.output import Output, one_line
from onward.cli.print.progress import Line, Narrator, is_at_work, printed, worked_us
from onward.cli.print.speech import spoken_lines
from onward.clock import SystemClock
from onward.model.chat import ChunkKind
from onward.model.events import Event
from onward.model.run import AttemptState, OpenStep, Run
from onward.model.values import span

TICK_S = 0.25
SAID_LINES_MAX = 4
STYLES = {
    "finished": "green",
    "failed": "red",
    "rejected": "red",
    "retrying": "yellow",
    "stopped": "yellow",
    "degraded": "yellow",
    "conflict": "yellow",
    "expired": "yellow",
    "partial": "yellow",
    "skipped": "yellow",
    "asks": "bold",
    "": "bold",
}


def can_move() -> bool:
    """Whether the terminal can move its cursor."""
    return not Console().is_dumb_terminal


class LiveProgress:
    """Progress that updates only while a step is open, so that a question at a gate has the screen."""

    def __init__(self, out: Output) -> None:
        self.narrator = Narrator(is_brief=True)
        self._out, self._clock = out, SystemClock()
        self._console = Console(highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._steps: Sequence[OpenStep] = ()

    @property
    def is_at_work(self) -> bool:
        return self._live is not None

    def observe(self, run: Run, events: Sequence[Event]) -> None:
        self._steps = tuple(run.open_steps.values())
        if not is_at_work(run):
            self.close()
        for line in self.narrator.lines(run, events):
            self._print(line)
        if is_at_work(run):
            self._show()

    def show(self, step: str, stream: str, text: str) -> None:
        self._print(printed(step, text))

    def hear(self, message: str, chunks: Sequence[tuple[ChunkKind, str]]) -> None:
        for line in self.narrator.hear(message, chunks):
            self._print(line)
        if self._live is not None:
            self._safely(self._live.refresh)

    def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        if self._live is not None:
            live, self._live = self._live, None
            self._safely(live.stop)

    def _print(self, line: Line) -> None:
        self._safely(lambda: self._console.print(Text(line.text, STYLES.get(line.tone, ""))))

    def _show(self) -> None:
        if self._live is None:
            self._live = Live(
                console=self._console, get_renderable=self._render, auto_refresh=False, transient=True
            )
            self._safely(self._live.start)
            self._ticking = asyncio.get_running_loop().create_task(self._tick())
        self._safely(self._live.refresh)

    async def _tick(self) -> None:
        while self._live is not None:
            self._safely(self._live.refresh)
            await asyncio.sleep(TICK_S)

    def _safely(self, draw: Callable[[], object]) -> None:
        """Draw; a closed terminal must not stop the run."""
        if self._out.is_gone:
            return
        try:
            draw()
        except OSError as error:
            self._out.lose(sys.stdout, error)

    def _render(self) -> RenderableType:
        rows = (self._row(step) for step in self._steps)
        said = (Text(row, no_wrap=True, overflow="ellipsis") for row in self._said())
        return Group(*said, *(Text(row, "cyan", no_wrap=True, overflow="ellipsis") for row in rows))

    def _said(self) -> Iterator[str]:
        """The end of what each agent is saying, as it comes."""
        width = max(self._console.width - 1, 20)
        for said in self.narrator.speech.open():
            lines = spoken_lines(said.speaker, said.text[-2 * width * SAID_LINES_MAX :])
            rows = [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]
            yield from rows[-SAID_LINES_MAX:]

    def _row(self, step: OpenStep) -> str:
        now_us, name = self._clock.now_us(), one_line(step.step)
        if step.state is AttemptState.RETRYING and step.retry_at_us is not None:
            left = span((step.retry_at_us - now_us) / 1_000_000)
            return f"  {'waiting':<8}  {name}  attempt {step.attempt + 1} in {left}"
        took = span(worked_us(step, now_us) / 1_000_000)
        return f"  {'running':<8}  {name}  attempt {step.attempt}  {took}"

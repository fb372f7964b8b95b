"""A run that is driven here and now: progress, signals, questions, and how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onward.cli.commands.decide.prompt import Prompt
from onward.cli.exits import UNFINISHED, exit_of
from onward.cli.opening import app_of
from onward.cli.options import Common
from onward.cli.print.output import Output
from onward.cli.print.progress import Progress, make_progress
from onward.cli.print.render import gate_lines, next_command, summary, workspace_words
from onward.cli.signals import Force, on_signals
from onward.config import load_settings
from onward.engine.control.interview import Interviewer
from onward.engine.engine import Engine
from onward.engine.log.journal import Folded
from onward.engine.loop.stop import StopSwitch
from onward.errors import InvalidInput, NoDatabase
from onward.machine.fold.row import project
from onward.machine.lifecycle import is_recoverable
from onward.model.run import Run, RunStatus
from onward.read.lookup import completed_of
from onward.read.view import view_gate, view_run, view_workspace
from onward.wiring import is_there

if TYPE_CHECKING:
    from onward.app import Onward

FIRST_SIGNAL = "stopping after the current step; press Ctrl-C again to stop now"
SECOND_SIGNAL = "stopping now"


@dataclass(frozen=True, slots=True)
class Foreground:
    """What driving a run in the foreground takes."""

    engine: Engine
    common: Common
    out: Output
    stop: StopSwitch
    progress: Progress
    interviewer: Interviewer | None

    async def finish(self, folded: Folded) -> int:
        """Answer gates as far as somebody does, say how the run stands, and give the exit code."""
        if self.interviewer is not None:
            folded = await self.engine.attend(folded, self.interviewer, self.stop)
        self.progress.close()
        await self.tell(folded)
        return exit_of(folded.run.status.value)

    async def tell(self, folded: Folded) -> None:
        """How the run stands, and what to type next."""
        run = folded.run
        self.out.say(summary(run))
        if run.status is RunStatus.WAITING and self.interviewer is None:
            gates = [view_gate(gate) for gate in run.gates.values() if gate.decided is None]
            for line in (line for gate in gates for line in gate_lines(gate)):
                self.out.say(f"  {line}")
        workspace = view_workspace(run)
        if workspace is not None and run.is_final:
            self.out.say(f"its work: {workspace_words(workspace)}")
        ahead = self._next_command(run)
        if ahead:
            self.out.say(f"go on with: {ahead}")
        if self.out.is_json:
            completed = await completed_of(self.engine.store.log, run.id)
            self.out.value(view_run(project(run), folded.holder, run, completed))

    def _next_command(self, run: Run) -> str | None:
        recoverable = is_recoverable(run.status, run.reason)
        return next_command(run.status.value, run.reason, recoverable, run.id, self.common)

    def asked_to_stop(self) -> None:
        """A signal came: the first lets the step finish."""
        if self.progress.is_at_work:
            self.out.say(FIRST_SIGNAL if self.stop.reason is None else SECOND_SIGNAL)
        self.stop.request("signal")


@asynccontextmanager
async def foreground(
    common: Common, out: Output, answers: str | None = None, *, makes_database: bool = False
) -> AsyncIterator[Foreground]:
    """Everything opened, signals heard; closed and deaf again afterwards."""
    settings = load_settings(
        db=common.db, app=common.app, answers=answers, runs=common.runs, files=common.files
    )
    app, stop, progress = app_of(settings), StopSwitch(settings.grace_s), make_progress(out)
    interviewer = _interviewer(app, settings.answers, out, stop)
    if not makes_database and isinstance(app.store, str) and not is_there(app.store):
        raise NoDatabase(app.store)
    engine = await app.engine(observe=progress.observe, tool_env=settings.tool_env, warn=out.note)
    force = Force(settings.grace_s, UNFINISHED, is_watched=bool(app.handlers))
    desk = Foreground(engine, common, out, stop, progress, interviewer)
    try:
        with on_signals(desk.asked_to_stop, force), out.alone():
            yield desk
    finally:
        progress.close()
        await app.close()


def _interviewer(app: Onward, answers: str | None, out: Output, stop: StopSwitch) -> Interviewer | None:
    """Whoever answers gates; None leaves them waiting."""
    name = answers or ("prompt" if out.is_terminal else "wait")
    if name == "wait":
        return None
    if name == "prompt":
        return Prompt(out, stop)
    found = app.interviewers.get(name)
    if found is None:
        names = ", ".join(sorted({"prompt", "wait", *app.interviewers}))
        raise InvalidInput(f"--answers {name!r} is nobody; choose one of {names}.")
    return found

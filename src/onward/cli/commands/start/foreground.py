"""A run that is executed here and now: progress, signals, questions, and how it ended."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from onward.cli.commands.decide.prompt import Prompt
from onward.cli.exits import UNFINISHED, exit_of
from onward.cli.opening.app import app_of
from onward.cli.opening.database import check_there
from onward.cli.opening.operating import courier_of
from onward.cli.options import Common
from onward.cli.print.gates import gate_lines
from onward.cli.print.output import Output
from onward.cli.print.progress import Progress, make_progress
from onward.cli.print.render import next_command, summary, workspace_words
from onward.cli.signals import Force, on_signals
from onward.clock import SystemClock
from onward.config import load_settings
from onward.engine.control.requests import AutoApprove, Interviewer
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput
from onward.model.events import Event
from onward.model.ids import called
from onward.model.run import Run
from onward.operations.here.execute import Execution
from onward.operations.local.operations import LocalOperations
from onward.operations.protocol import Operations
from onward.operations.replies.runs import RunState

if TYPE_CHECKING:
    from onward.app import Onward
    from onward.notify.courier import Courier

FIRST_SIGNAL = "stopping after the current step; press Ctrl-C again to stop now"
SECOND_SIGNAL = "stopping now"
FINAL = ("completed", "cancelled")


class Foreground(msgspec.Struct, frozen=True):
    """What executing a run in the foreground takes."""

    operations: Operations
    execution: Execution
    common: Common
    out: Output
    stop: StopSwitch
    progress: Progress

    def finish(self, run: RunState) -> int:
        """Say how a run stands that was executed here, and give the exit code."""
        self.progress.close()
        self.tell(run)
        return exit_of(run["status"])

    def tell(self, run: RunState, *, is_whole: bool = False, answer: Sequence[str] = ()) -> None:
        """How the run stands, and what to type next; `is_whole`: with all that its gates are about.

        `answer` is what to type after `onward answer RUN`.
        """
        self.out.say(summary(run))
        if run["waiting_for"]:
            self.out.note(run["waiting_for"]["says"])
        if run["status"] == "waiting" and self.execution.interviewer is None:
            gates = [gate for gate in run["gates"] if gate["decided"] is None]
            for line in (line for gate in gates for line in gate_lines(gate, is_whole=is_whole)):
                self.out.say(f"  {line}")
        if run["workspace"] is not None and run["status"] in FINAL:
            self.out.say(f"its work: {workspace_words(run['workspace'])}")
        for step in run["open_steps"] if run["status"] == "failed" else ():
            if (run["id"], step["step"]) in self.progress.narrator.with_output:
                words = ("logs", called(run["id"]), shlex.quote(step["step"]))
                self.out.say(f"its output: {self.common.command(*words)}")
        if run["status"] == "running":  # by somebody else: what is executed here is told when it has stopped
            follow = self.common.command("events", called(run["id"]), "--follow")
            self.out.say(f"follow it with: {follow}")
        ahead = next_command(run, self.common, answer=answer)
        if ahead:
            self.out.say(f"continue with: {ahead}")
        if self.out.is_json:
            self.out.value(run)

    def asked_to_stop(self) -> None:
        """A signal came: the first lets the step finish."""
        if self.progress.is_at_work:
            self.out.say(FIRST_SIGNAL if self.stop.reason is None else SECOND_SIGNAL)
        self.stop.request("signal")


@asynccontextmanager
async def foreground(
    common: Common,
    out: Output,
    answers: str | None = None,
    *,
    makes_database: bool = False,
    verbose: bool = False,
) -> AsyncIterator[Foreground]:
    """Everything opened, signals heard; closed and deaf again afterwards."""
    settings = load_settings(
        db=common.db, app=common.app, answers=answers, runs=common.runs, files=common.files
    )
    app, stop, progress = app_of(settings), StopSwitch(settings.grace_s), make_progress(out)
    out.redactor = app.redactor
    interviewer = _interviewer(app, settings.answers, out, stop)
    if not makes_database:
        check_there(app.store)
    progress.narrator.is_verbose = verbose
    courier: Courier | None = None

    def observe(run: Run, events: Sequence[Event]) -> None:
        progress.observe(run, events)
        if courier is not None:
            courier.observe(run, events)

    engine = await app.engine(
        observe=progress.observe if settings.notify is None else observe,
        tool_env=settings.tool_env,
        warn=out.note,
        show=progress.show if verbose else None,
    )
    force = Force(settings.grace_s, UNFINISHED, is_watched=bool(app.handlers))
    clock = SystemClock()
    execution = Execution(engine, clock, stop, interviewer, completed=out.is_json, chats=app.chat_settings)
    desk = Foreground(
        LocalOperations(engine, clock, app.chat_settings), execution, common, out, stop, progress
    )
    try:
        courier = courier_of(app, engine.store, settings, warn=out.note, stop=stop)
        with on_signals(desk.asked_to_stop, force), out.alone():
            async with nullcontext() if courier is None else courier.at_work():
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
        raise InvalidInput(f"--answers {name!r} is unknown; choose one of {names}.")
    # The app may have registered its own under the name.
    return AutoApprove(out.note) if type(found) is AutoApprove else found

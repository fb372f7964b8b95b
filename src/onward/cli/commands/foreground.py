"""A run that is executed here and now: progress, signals, questions, and how it ended.

A person at the terminal is asked in a way that a signal can end.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import termios
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from onward.cli.kept_apps import has_kept_app, keep_app, with_kept_app
from onward.cli.operations import app_of, check_there, courier_of
from onward.cli.options import Common
from onward.cli.output import UNFINISHED, Output, exit_of
from onward.cli.print.progress import Progress, make_progress
from onward.cli.print.run import gate_lines, next_command, summary, value_words, workspace_words
from onward.cli.signals import Force, on_signals
from onward.clock import SystemClock
from onward.config import load_settings
from onward.engine.control.requests import AutoApprove, Interviewer
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput
from onward.machine.decide.requests import decision
from onward.machine.reasons import SIGNAL
from onward.model.events import Event, RunClaimed
from onward.model.gate import Answer
from onward.model.ids import called
from onward.model.run import Gate, Run
from onward.operations.here.execute import Execution
from onward.operations.local.operations import LocalOperations
from onward.pipeline.flow_source import RESULT
from onward.pipeline.gate import FREEFORM
from onward.read.view import view_gate

if TYPE_CHECKING:
    from onward.app import Onward
    from onward.notify.courier import Courier
    from onward.operations.protocol import Operations
    from onward.replies.runs import RunState


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
    is_app_found: bool = False
    """Whether the app is that of the file with the flow, at the same database: it is found again."""

    def common_of(self, run_id: str) -> Common:
        """The flags that the next command about a run needs."""
        if self.is_app_found and has_kept_app(load_settings(db=self.common.db), run_id):
            return replace(self.common, app=None)
        return self.common

    def finish(self, run: RunState) -> int:
        """Say how a run stands that was executed here, and give the exit code."""
        self.progress.close()
        self.tell(run)
        return exit_of(run["status"])

    def tell(self, run: RunState, *, is_whole: bool = False, answer: Sequence[str] = ()) -> None:
        """How the run stands, and what to type next; `is_whole`: with all that its gates are about.

        `answer` is what to type after `onward answer RUN`.
        """
        common = self.common_of(run["id"])
        self.out.say(summary(run))
        if run["status"] == "completed" and run["context"].get(RESULT) is not None:
            self.out.say(f"its result: {value_words(run['context'][RESULT])}")
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
                self.out.say(f"its output: {common.command(*words)}")
        if run["status"] == "running":  # by somebody else: what is executed here is told when it has stopped
            follow = common.command("events", called(run["id"]), "--follow")
            self.out.say(f"follow it with: {follow}")
        if run["managed_by"] is not None and run["status"] in (*FINAL, "failed"):
            above = called(run["managed_by"]["run"])
            self.out.say(f"it is a part of run {above}: {common.command('show', above)}")
        ahead = next_command(run, common, answer=answer)
        if ahead:
            self.out.say(f"continue with: {ahead}")
        if self.out.is_json:
            self.out.value(run)

    def asked_to_stop(self) -> None:
        """A signal came: the first lets the step finish."""
        if self.progress.is_at_work:
            self.out.say(FIRST_SIGNAL if self.stop.reason is None else SECOND_SIGNAL)
        self.stop.request(SIGNAL)


@asynccontextmanager
async def foreground(
    common: Common,
    out: Output,
    answers: str | None = None,
    *,
    makes_database: bool = False,
    verbose: bool = False,
    run: str | None = None,
    is_app_of_file: bool = False,
) -> AsyncIterator[Foreground]:
    """Everything opened, signals heard; closed and deaf again afterwards.

    `run` is the run to continue, if there is one: its app is found again. `is_app_of_file`: nobody named the
    app, it is that of the file with the flow.
    """
    settings = load_settings(
        db=common.db, app=common.app, answers=answers, runs=common.runs, files=common.files
    )
    settings = with_kept_app(settings, run)
    app, stop, progress = app_of(settings), StopSwitch(settings.grace_s), make_progress(out)
    out.redactor = app.redactor
    interviewer = _interviewer(app, settings.answers, out, stop)
    if not makes_database:
        check_there(app.store)
    progress.narrator.is_verbose = verbose
    courier: Courier | None = None
    kept = None if settings.is_app_of_project or not isinstance(app.store, str) else settings.app
    directory = settings.app_directory or os.getcwd()

    def observe(run: Run, events: Sequence[Event]) -> None:
        if kept is not None and any(isinstance(event, RunClaimed) for event in events):
            assert isinstance(app.store, str)
            keep_app(run.id, app.store, kept, directory)  # before anything is said of the run
        progress.observe(run, events)
        if courier is not None:
            courier.observe(run, events)

    engine = await app.engine(
        observe=progress.observe if settings.notify is None and kept is None else observe,
        tool_env=settings.tool_env,
        warn=out.note,
        show=progress.show if verbose else None,
        hear=progress.hear,
    )
    force = Force(settings.grace_s, UNFINISHED, is_watched=bool(app.handlers))
    clock = SystemClock()
    execution = Execution(engine, clock, stop, interviewer, chats=app.chat_settings)
    desk = Foreground(
        LocalOperations(engine, clock, app.chat_settings),
        execution,
        common,
        out,
        stop,
        progress,
        is_app_found=is_app_of_file and app.store == settings.db,
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
        return GatePrompt(out, stop)
    found = app.interviewers.get(name)
    if found is None:
        names = ", ".join(sorted({"prompt", "wait", *app.interviewers}))
        raise InvalidInput(f"--answers {name!r} is unknown; choose one of {names}.")
    # The app may have registered its own under the name.
    return AutoApprove(out.note) if type(found) is AutoApprove else found


CHUNK = 4096
LINE_BYTES_MAX = 1024 * 1024


class TerminalLines:
    """Lines of a descriptor, read through the event loop: nothing blocks, and nothing outlives the wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = b""
        self._is_over = False

    async def next(self, stop: StopSwitch) -> str | None:
        """The next line without its end; None when there is no more, or as soon as `stop` is asked for.

        A line that is too long is refused with `InvalidInput`, and nothing more is read.
        """
        while b"\n" not in self._read and not self._is_over:
            if len(self._read) > LINE_BYTES_MAX:
                raise InvalidInput(
                    f"the answer is longer than {LINE_BYTES_MAX:,} bytes; the gate stays open."
                )
            if not await self._readable(stop):
                return None
            self._take()
        line, newline, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace") if line or newline else None

    def forget_what_was_typed_ahead(self) -> None:
        """At a terminal, a key that was hit before the question was shown is no answer to it."""
        if os.isatty(self._descriptor):
            self._read = b""
            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def _take(self) -> None:
        try:
            chunk = os.read(self._descriptor, CHUNK)
        except OSError:  # the terminal is gone
            chunk = b""
        self._read += chunk
        self._is_over = not chunk

    async def _readable(self, stop: StopSwitch) -> bool:
        """Whether there is something to read before somebody asks to stop."""
        if stop.reason is not None:
            return False
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[bool] = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _settle(ready, True))
        except PermissionError:
            return True  # an ordinary file, which never keeps anybody waiting
        asked_to_stop = _settle(ready, False)
        stop.listen(asked_to_stop)
        try:
            return await ready
        finally:
            stop.unlisten(asked_to_stop)
            loop.remove_reader(self._descriptor)


def _settle(future: asyncio.Future[bool], value: bool) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(value)


class GatePrompt:
    """Asks whoever sits at the terminal. The end of input, or a signal, leaves the gate open."""

    name = "user"

    def __init__(self, out: Output, stop: StopSwitch) -> None:
        self._out, self._stop = out, stop
        self._lines = None if sys.stdin is None else TerminalLines(sys.stdin.fileno())

    async def ask(self, run: Run, gate: Gate) -> Answer:
        if self._lines is not None:
            self._lines.forget_what_was_typed_ahead()
        for line in gate_lines(view_gate(gate), is_whole=True):
            self._out.say(line)
        while self._lines is not None:
            self._out.say(asking_line(gate), end="")
            try:
                typed = await self._lines.next(self._stop)
            except InvalidInput as error:
                self._lines = None
                self._out.say(f"\n{error}")
                break
            if typed is None:
                break
            answer = Answer(typed.strip() or default_key(gate))
            try:
                decision(gate, answer, by=self.name)
            except InvalidInput as error:
                if answer.choice:
                    self._out.say(str(error))
                continue
            return answer
        self._out.say()
        return Answer.skip()

    async def inform(self, message: str, stage: str) -> None:
        self._out.say(f"\n{message}")


def default_key(gate: Gate) -> str:
    """What the empty line chooses; where words are asked for it is no answer."""
    return "" if gate.type == FREEFORM else gate.default


def asking_line(gate: Gate) -> str:
    """What stands before the cursor: the keys, and what the empty line means."""
    default = f"Enter for {default_key(gate)}" if default_key(gate) else ""
    keys = "" if gate.type == FREEFORM else "/".join(choice.key for choice in gate.choices)
    offered = "; ".join(filter(None, (keys, default)))
    return f"your answer ({offered}): " if offered else "your answer: "

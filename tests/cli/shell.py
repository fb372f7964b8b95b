"""A shell for tests: the real console script, in a directory and at a database of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from onward.cli.main import run
from onward.cli.output import clean
from tests.cli.described import check_reply
from tests.cli.nursery import Process
from tests.cli.nursery import start as start_python

ONWARD = str(Path(sys.executable).with_name("onward"))
PATIENCE_S = 120
# Makes the terminal on its standard input its own, so that a typed Ctrl-C becomes a signal.
IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error object of a command with --json."""
        found: dict[str, Any] = json.loads(self.out)["error"]
        return found


def wait_until(condition: Callable[[], bool], what: str = "it") -> None:
    """Return when it holds; nothing announces what another process did, so look often."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} never came"
        time.sleep(0.01)


def wait_for_file(path: Path) -> None:
    """Return when another process has created it."""
    wait_until(path.exists, str(path))


class Reader:
    """What comes out of a descriptor, as it comes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.data = b""

    @property
    def text(self) -> str:
        return clean(self.data.decode(errors="replace"))

    def wait_for(self, wanted: str, *, times: int = 1) -> None:
        """Until `wanted`, a regular expression, has been printed so many times."""
        deadline_s = time.monotonic() + PATIENCE_S
        while len(re.findall(wanted, self.text)) < times:
            if not self._more(deadline_s - time.monotonic()):
                raise AssertionError(f"{wanted!r} never came; this did: {self.text}")

    def rest(self) -> str:
        deadline_s = time.monotonic() + PATIENCE_S
        while self._more(deadline_s - time.monotonic()):
            pass
        return self.text

    def _more(self, patience_s: float) -> bool:
        ready, _, _ = select.select([self.descriptor], [], [], max(patience_s, 0))
        if not ready:
            raise AssertionError(f"nothing more came in {PATIENCE_S} s behind this: {self.text}")
        try:
            chunk = os.read(self.descriptor, 65536)
        except OSError:  # what a terminal says when nobody has it open any more
            return False
        self.data += chunk
        return bool(chunk)


class Started:
    """A command that is running, with pipes."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._out = Reader(process.stdout.fileno())

    def wait_for(self, wanted: str, *, times: int = 1) -> None:
        self._out.wait_for(wanted, times=times)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> Done:
        """What it came to."""
        out = self._out.rest()
        _, err = self.process.communicate(timeout=PATIENCE_S)
        return Done(self.process.wait(), out, err.decode())


class Terminal:
    """A command that is running in a terminal of its own; its standard error may go into a pipe instead."""

    def __init__(
        self, command: Sequence[str], directory: Path, environment: dict[str, str], *, has_pipe: bool
    ) -> None:
        self._ours, theirs = pty.openpty()
        _keep_output(theirs)
        self._screen = Reader(self._ours)
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, *command],
            cwd=directory,
            env={"TERM": "xterm", "COLUMNS": "120", "LINES": "40", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE if has_pipe else theirs,
            start_new_session=True,
        )
        os.close(theirs)

    @property
    def bytes(self) -> bytes:
        """What was printed, escapes and all."""
        return self._screen.data

    def wait_for(self, wanted: str, *, times: int = 1) -> None:
        self._screen.wait_for(wanted, times=times)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def hang_up(self) -> Reader:
        """Close the window; what the process still says on standard error."""
        assert self.process.stderr is not None, "nothing would tell that the process knows"
        os.close(self._ours)
        return Reader(self.process.stderr.fileno())

    def end(self) -> Done:
        out = self._screen.rest()
        code = self.process.wait(PATIENCE_S)
        os.close(self._ours)
        return Done(code, out, "")


def _keep_output(terminal: int) -> None:
    """Let Ctrl-C discard nothing: else a second one takes away what was printed after the first."""
    attributes = termios.tcgetattr(terminal)
    attributes[3] |= termios.NOFLSH
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


class Latch:
    """A place where a shell step waits until the test lets it go on."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.command = f"cat {path} > /dev/null"
        self._held = -1

    def wait_reached(self) -> None:
        """Until a step stands here."""
        self._let_go()  # of one that was killed
        self._held = os.open(self._path, os.O_WRONLY)  # opens when somebody reads

    def release(self) -> None:
        """Let the step that stands here go on."""
        assert self._held >= 0, "wait until a step is here"
        self._let_go()

    def _let_go(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def _stream() -> io.TextIOWrapper:
    """A standard stream that keeps what is written, text and bytes."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


@contextlib.contextmanager
def _imports(directory: Path) -> Iterator[None]:
    """What is imported from the directory inside is forgotten: another test's app may have the same name."""
    path, modules = [*sys.path], {*sys.modules}
    try:
        yield
    finally:
        sys.path[:] = path
        for name in {*sys.modules} - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(directory)):
                del sys.modules[name]


class Shell:
    """A person's shell: a directory, an environment, a database."""

    def __init__(self, directory: Path, db: str) -> None:
        self.directory, self.db = directory, db
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "ONWARD_DB": db,
        }
        self._processes: list[Process] = []

    def __call__(self, *words: str, stdin: str = "", patience_s: float = PATIENCE_S) -> Done:
        """Run a command to its end in its own process. Where the process is not the point, use `inside`."""
        done = subprocess.run(
            [ONWARD, *words],
            cwd=self.directory,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=patience_s,
        )
        if "--json" in words:
            check_reply(words, done.stdout)
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, before: Sequence[str] = ()) -> Started:
        """Run a command beside the test; `before` is what stands before it on the command line."""
        process = (
            subprocess.Popen(
                [*before, ONWARD, *words],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            if before
            else start_python([ONWARD, *words], self.directory, self.environment)
        )
        self._processes.append(process)
        return Started(process)

    def terminal(self, *words: str, has_pipe: bool = False) -> Terminal:
        """Run a command in a terminal beside the test."""
        terminal = Terminal([ONWARD, *words], self.directory, self.environment, has_pipe=has_pipe)
        self._processes.append(terminal.process)
        return terminal

    def close(self) -> None:
        """Leave nothing running, whatever became of the test."""
        for process in self._processes:
            process.kill()
            process.communicate()

    def inside(self, *words: str) -> Done:
        """Run a command to its end in this process: the same code, without the wait for an interpreter."""
        with contextlib.ExitStack() as stack:
            out, err = (stack.enter_context(_stream()) for _ in range(2))
            nothing = stack.enter_context(open(os.devnull))
            for context in (
                contextlib.chdir(self.directory),
                mock.patch.dict(os.environ, self.environment, clear=True),
                _imports(self.directory),
                mock.patch.object(sys, "stdin", nothing),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                stack.enter_context(context)
            code = run(words)
            done = Done(code, _written(out), _written(err))
        if "--json" in words:
            check_reply(words, done.out)
        return done

    def write(self, name: str, text: str) -> str:
        """Put a file into the directory."""
        (self.directory / name).write_text(text)
        return name

    def latch(self, name: str) -> Latch:
        return Latch(self.directory / name)

    def read(self, run_id: str) -> dict[str, Any]:
        """A run as `show --json` has it."""
        shown: dict[str, Any] = self.inside("show", run_id, "--json").json
        return shown

    def log(self, run_id: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.inside("events", run_id, "--json").out.splitlines()]

    @property
    def ledger(self) -> list[str]:
        """What the shell steps of `noting` wrote down."""
        path = self.directory / "ledger"
        return path.read_text().split() if path.exists() else []

    def noting(self, command: str = "true") -> str:
        """A shell command that first writes its step into the ledger."""
        return f"echo $ONWARD_STEP >> {self.directory / 'ledger'}; {command}"


def pipeline(*steps: tuple[str, str], name: str = "line", more: str = "") -> str:
    """A pipeline of shell steps in a line: `(node, command)`; `more` is added to the graph."""
    nodes = "\n".join(f'  {node} [shape=parallelogram, tool_command="{command}"]' for node, command in steps)
    path = " -> ".join(("start", *(node for node, _ in steps), "exit"))
    return (
        f"digraph {name} {{\n  start [shape=Mdiamond]\n  exit [shape=Msquare]\n{nodes}\n  {path}\n{more}}}\n"
    )


GATE = """
digraph gate {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  ask [shape=hexagon, label="Ship it?"]
  again [shape=hexagon, label="Really?"]
  drop [shape=parallelogram, tool_command="true"]
  start -> ask
  ask -> again [label="[Y] Yes"]
  ask -> drop [label="[N] No"]
  again -> exit [label="[S] Sure"]
  again -> drop [label="[W] Wait"]
  drop -> exit
}
"""

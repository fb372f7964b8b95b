"""Processes that are born with the package imported: most of what a new one does is to import it.

One process, the nursery, imports what commands need and forks itself for each that a test starts. The fork
runs the console script, or a module, from its first line to the end of the interpreter, with a directory, an
environment and standard streams of its own, and is signalled and killed like any other process.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import itertools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Never

IMPORTED = (
    "onward.cli.main",
    "onward.cli.commands.run",
    "onward.cli.commands.workers",
    "onward.wiring",
    "onward.store.sqlite.adapter",
    "onward.store.postgres.adapter",
)
STREAMS = 3
LENGTH = 8
CHUNK = 65536
STATUS = array.array("i", [0]).itemsize
# What the interpreter reads when it starts, and no fork reads again.
READ_AT_START = ("PYTHON", "LC_", "LANG", "MALLOC", "LD_")
INHERITED = {"LANG": "C.UTF-8"}
_one_at_a_time = threading.Lock()
# Forks of one process hash strings alike, so that one that resumes what another began would see sets in the
# same order: they come from two in turn.
_turns = itertools.cycle(range(2))


class Born:
    """A process of the nursery, used like a `subprocess.Popen`."""

    def __init__(self, pid: int, streams: Sequence[IO[bytes] | None], status: int) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """How it ended, if it has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """How it ended, as soon as it has."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            status = os.read(self._status, STATUS)
            os.close(self._status)
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status or b"\x09", sys.byteorder))
            assert status, "the nursery is gone, and nobody knows how its processes ended"
        return self.returncode

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        """What it still prints until its end."""
        if self.stdin is not None:
            self.stdin.close()
        said = {stream: b"" for stream in (self.stdout, self.stderr) if stream is not None}
        waiting = [stream for stream in said if not stream.closed]
        while waiting:
            ready, _, _ = select.select(waiting, [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            for stream in ready:
                if chunk := os.read(stream.fileno(), CHUNK):
                    said[stream] += chunk
                else:
                    stream.close()
                    waiting.remove(stream)
        self.wait(timeout)
        return (
            said[self.stdout] if self.stdout is not None else b"",
            said[self.stderr] if self.stderr is not None else b"",
        )

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended, which will be told
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Born | subprocess.Popen[bytes]


def start(
    command: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> Process:
    """Start Python with these words: a script or `-m` and a module, and arguments.

    Each stream is a pipe or nothing. Where a fork would be another process than a new one, it is a new one.
    """
    special = {name: text for name, text in environment.items() if name.startswith(READ_AT_START)}
    if special == INHERITED and hasattr(os, "pidfd_open"):
        return _bear(command, directory, environment, (stdin, stdout, stderr))
    words = [sys.executable, *command]
    return subprocess.Popen(words, cwd=directory, env=environment, stdin=stdin, stdout=stdout, stderr=stderr)


def _bear(
    command: Sequence[str], directory: Path, environment: Mapping[str, str], wanted: Sequence[int]
) -> Born:
    ours, theirs = list[IO[bytes] | None](), list[int]()
    for number, kind in enumerate(wanted):
        if kind == subprocess.DEVNULL:
            ours.append(None)
            theirs.append(os.open(os.devnull, os.O_RDWR))
            continue
        reading, writing = os.pipe()
        ours.append(os.fdopen(reading, "rb") if number else os.fdopen(writing, "wb"))
        theirs.append(writing if number else reading)
    status, its_status = os.pipe()
    theirs.append(its_status)
    asked = json.dumps([[*command], str(directory), dict(environment)]).encode()
    with _one_at_a_time:
        line = _nursery(next(_turns))
        socket.send_fds(line, [len(asked).to_bytes(LENGTH)], theirs)
        line.sendall(asked)
        pid = int.from_bytes(_exactly(line, LENGTH))
    for descriptor in theirs:
        os.close(descriptor)
    return Born(pid, ours, status)


@cache
def _nursery(number: int) -> socket.socket:
    """The line to a nursery of this process, which ends when the line does."""
    ours, its = socket.socketpair()
    with its:
        nursery = subprocess.Popen(
            [sys.executable, __file__, str(its.fileno())],
            env={"PATH": os.environ["PATH"], **INHERITED},
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
        )
    for step in (nursery.wait, ours.close, partial(ours.shutdown, socket.SHUT_RDWR)):  # the last comes first
        atexit.register(step)
    return ours


def _exactly(line: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        chunk = line.recv(length - len(data))
        assert chunk, "the other side is gone"
        data += chunk
    return data


def _serve(line: socket.socket) -> tuple[list[str], list[int]]:
    """Fork for everybody who asks. Returns in the forks alone: what to run, and with which streams."""
    born = dict[int, tuple[int, int]]()
    while True:
        for ready in select.select([line.fileno(), *born], [], [])[0]:
            if ready != line.fileno():
                _tell_end(ready, *born.pop(ready))
                continue
            length, descriptors, _, _ = socket.recv_fds(line, LENGTH, STREAMS + 1)
            if not length:
                os._exit(0)
            command, directory, environment = json.loads(_exactly(line, int.from_bytes(length)))
            *streams, status = descriptors
            if pid := os.fork():
                born[os.pidfd_open(pid)] = pid, status
                for stream in streams:
                    os.close(stream)
                line.sendall(pid.to_bytes(LENGTH))
                continue
            for descriptor in (line.fileno(), status, *born, *(its for _, its in born.values())):
                os.close(descriptor)
            os.chdir(directory)
            os.environ.clear()
            os.environ.update(environment)
            return command, streams


def _tell_end(handle: int, pid: int, status: int) -> None:
    os.close(handle)
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know
        os.write(status, os.waitpid(pid, 0)[1].to_bytes(STATUS, sys.byteorder))
    os.close(status)


def _run(command: list[str], streams: list[int]) -> None:
    """Be the process that was asked for, as the interpreter would have started it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        opened: Any = os.fdopen(
            number,
            "w" if number else "r",
            buffering=1 if name == "stderr" else -1,
            encoding="utf-8",
            errors="backslashreplace" if name == "stderr" else "surrogateescape",
            closefd=False,
        )
        opened.buffer.raw.name = f"<{name}>"
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    time.tzset()
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).parent))
        runpy.run_path(command[0], run_name="__main__")


def _main() -> Never:
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who end it
    del sys.path[0]  # where this file is
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    command, streams = _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, interrupted)
    _run(command, streams)
    sys.exit()


if __name__ == "__main__":
    _main()

"""Run a command as a child process that cannot outlive us or leave processes running.

A command may fork, move to another session and become a daemon, and we may be killed at any instant.
`PR_SET_PDEATHSIG` alone reaches only the direct child, and fires when the *thread* that forked it ends. A
list of process groups misses `setsid` and has a gap between fork and registration. So each command runs
below its own supervisor (`supervisor`), which exists before the command, adopts every process that the
command leaves, and kills them all when our process dies. One small process, the nursery, starts with the
first command and forks the supervisors: forking here, in a large process with threads, would be slower and
unsafe. `child` is our end of the connection to both.

Cost: at least 4 ms per command (a bare fork and exec takes 1.3), more when all cores are busy, because
three processes must be scheduled; 40 to 90 ms once; 1 MB of memory for each running command.

When the shell has ended, the processes it left get a moment to finish and are then ended too: a step owns
its processes. Limits: a process that gained other rights (sudo), or that sleeps in the kernel, cannot be
ended, so we wait for it; if supervisor *and* nursery are killed by hand, only the shell dies with them;
without Linux, only the shell's process group is ended, and only while no fork of ours holds our sockets
open.

`SystemSpawn.run` runs a command to its end. `SystemSpawn.talk` starts a program that we talk to through
pipes for as long as it runs (`Dialogue`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from onward.child import CHUNK_BYTES, CHUNKS_LEFT_MAX, Capture, Child, Clean, NurseryClient, within
from onward.clock import NO_DEADLINE, Deadline
from onward.errors import CannotExecute, InvalidInput, SpawnFailed

SHELL = "/bin/sh"
Hear = Callable[[str, bytes], None]
Cleaner = Callable[[str], Clean | None]
"""What takes secrets out of a stream of this name; None if nothing must."""
OUTPUT_BYTES_MAX = 1 << 20
GRACE_S = 2.0  # between SIGTERM and SIGKILL
LINGER_S = 1.0  # for processes that the shell left running
DRAIN_S = 1.0  # for output, if a process outside the command holds its pipe


class CommandExit(msgspec.Struct, frozen=True):
    """How a command ended: with an exit code, or by a signal."""

    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool  # only the end of the output was kept
    duration_s: float


class Spawn(Protocol):
    """Runs commands."""

    async def run(
        self,
        command: str,
        *,
        env: Mapping[str, str],
        cwd: str | None,
        timeout_s: float | None,
        stdin: bytes = b"",
        deadline: Deadline,
        hear: Hear | None = None,
    ) -> CommandExit:
        """Run `command` in a shell with exactly this environment; nothing it started is left afterwards.

        `hear` gets what it prints as it comes, with the name of the stream.

        That also holds after a time-out, a cancellation and the `deadline`. Raises `InvalidInput` for a
        command that cannot be run and `SpawnFailed` if it could not be started; in both cases it did not run.
        """
        ...


class SystemSpawn:
    """Real processes."""

    def __init__(
        self,
        *,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        grace_s: float = GRACE_S,
        linger_s: float = LINGER_S,
        cleaner: Cleaner = lambda stream: None,
    ) -> None:
        self._output_bytes_max, self._grace_s, self._linger_s = output_bytes_max, grace_s, linger_s
        self._cleaner = cleaner
        self._lock = threading.Lock()
        self._nursery: NurseryClient | None = None

    async def run(
        self,
        command: str,
        *,
        env: Mapping[str, str],
        cwd: str | None,
        timeout_s: float | None,
        stdin: bytes = b"",
        deadline: Deadline = NO_DEADLINE,
        hear: Hear | None = None,
    ) -> CommandExit:
        if timeout_s is not None and not timeout_s > 0:
            raise InvalidInput(f"a time limit of {timeout_s} s is not allowed; use more than 0, or none.")
        request = _request(SHELL, ["sh", "-c", command], env, cwd)
        return await self._run(request, cwd, timeout_s, stdin, deadline, hear)

    async def run_program(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        timeout_s: float | None = None,
        stdin: bytes = b"",
        deadline: Deadline = NO_DEADLINE,
        hear: Hear | None = None,
    ) -> CommandExit:
        """Run a program with its arguments, without a shell; CannotExecute if it cannot be started."""
        try:
            request = _request(words[0], words, env, cwd)
            return await self._run(request, cwd, timeout_s, stdin, deadline, hear)
        except _NotExecuted as error:
            if error.number in (errno.EAGAIN, errno.ENOMEM):
                raise  # the machine's fault, not the program's
            is_missing = error.number in (errno.ENOENT, errno.ENOTDIR)
            raise CannotExecute(words[0], os.strerror(error.number), is_missing=is_missing) from error

    async def talk(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        hear: Callable[[bytes], None],
        stderr_bytes_max: int = 8192,
    ) -> Dialogue:
        """Start a program that runs until it is closed, to write to it and hear what it prints.

        `hear` gets its standard output as it comes, and `b""` at the end; what it writes to standard error
        only the end of is kept. Whether it could be started is known when it has ended, or says something.
        """
        request = _request(words[0], words, env, cwd)
        with contextlib.ExitStack() as resources:
            try:
                with contextlib.ExitStack() as theirs:
                    pipes = [os.pipe() for _ in range(3)]
                    (stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr) = pipes
                    for fd in (our_stdin, our_stdout):
                        resources.callback(os.close, fd)
                    for fd in (stdin, stdout, stderr):
                        theirs.callback(os.close, fd)
                    said = Capture(our_stderr, stderr_bytes_max, clean=self._cleaner("stderr"))
                    resources.callback(said.close)
                    child = await self._forked([stdin, stdout, stderr], resources)
            except OSError as error:
                raise SpawnFailed(f"starting a program failed: {error.strerror}; try again later.") from error
            await child.send(request)
            resources.pop_all()
            return Dialogue(child, our_stdin, our_stdout, said, hear)

    async def _forked(self, stdio: list[int], resources: contextlib.ExitStack) -> Child:
        """Have a supervisor forked that owns these descriptors; `resources` releases our end of it."""
        control, their_control = socket.socketpair()
        with their_control:
            child = Child(control)
            resources.callback(child.close)
            await self._ask_nursery([their_control.fileno(), *stdio])
        return child

    async def _run(
        self,
        request: bytes,
        cwd: str | None,
        timeout_s: float | None,
        stdin: bytes,
        deadline: Deadline,
        hear: Hear | None = None,
    ) -> CommandExit:
        loop = asyncio.get_running_loop()
        started = loop.time()
        with contextlib.ExitStack() as resources:
            child, out, err = await self._ask(stdin, resources, hear)
            resources.enter_context(deadline.followed(child.kill_at))
            try:
                await child.send(request, deadline.at_s)
                timed_out = not await within(child.ended, timeout_s)
                if not timed_out:
                    await within(child.gone, self._linger_s)
            finally:
                await child.stop(self._grace_s)
            for capture in (out, err):
                await within(capture.closed, DRAIN_S)
            exit_code, by_signal = _outcome(child, cwd)
            return CommandExit(
                exit_code=exit_code,
                signal=by_signal,
                stdout=out.text(),
                stderr=err.text(),
                timed_out=timed_out,
                truncated=out.is_cut or err.is_cut,
                duration_s=loop.time() - started,
            )

    def close(self) -> None:
        """End the nursery. Commands that are still running keep their supervisors."""
        with self._lock:
            nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.close()

    async def _ask(
        self, stdin: bytes, resources: contextlib.ExitStack, hear: Hear | None
    ) -> tuple[Child, Capture, Capture]:
        """Have a supervisor forked; `resources` releases everything that it needs on our side."""
        try:
            with contextlib.ExitStack() as theirs:
                fds = [_input(stdin)]
                theirs.callback(os.close, fds[0])
                captures = []
                for stream in ("stdout", "stderr"):
                    reader, writer = os.pipe()
                    theirs.callback(os.close, writer)
                    fds.append(writer)
                    heard = None if hear is None else partial(hear, stream)
                    clean = self._cleaner(stream)
                    captures.append(Capture(reader, self._output_bytes_max, heard, clean))
                    resources.callback(captures[-1].close)
                child = await self._forked(fds, resources)
        except OSError as error:
            raise SpawnFailed(f"starting a command failed: {error.strerror}; try again later.") from error
        return child, captures[0], captures[1]

    async def _ask_nursery(self, fds: list[int]) -> None:
        nursery = self._get_nursery()
        try:
            await nursery.ask(*fds)
        except ConnectionError:
            # It was killed before it read the request, so nothing was started and asking again is safe.
            self.close()
            await self._get_nursery().ask(*fds)

    def _get_nursery(self) -> NurseryClient:
        with self._lock:
            if self._nursery is None or self._nursery.pid != os.getpid():
                self._nursery = NurseryClient()
            return self._nursery


class _NotExecuted(SpawnFailed):
    """The supervisor ran, but the system did not execute the program."""

    def __init__(self, number: int, what: str) -> None:
        self.number = number
        super().__init__(f"the {what} cannot be started: {os.strerror(number)}; try again later.")


def _request(program: str, words: Sequence[str], env: Mapping[str, str], cwd: str | None) -> bytes:
    """The request to the supervisor: directory, program, its words and variables, separated by NUL."""
    for name in env:
        if not name or "=" in name:
            raise InvalidInput(f"{name!r} cannot be the name of an environment variable.")
    variables = [f"{name}={value}" for name, value in env.items()]
    named = [("the command", word) for word in words]
    named += [(f"the variable {name}", value) for name, value in env.items()]
    for what, field in named:
        if "\0" in field:
            raise InvalidInput(
                f"{what} contains a NUL character, which cannot be passed to a program; remove it."
            )
    try:
        directory = os.path.abspath(cwd) if cwd is not None else os.getcwd()
        fields = (directory, program, str(len(words)), *words, *variables)
        return b"\0".join(os.fsencode(field) for field in fields)
    except (FileNotFoundError, UnicodeEncodeError) as error:
        raise InvalidInput(f"the command cannot be passed to the system: {error}.") from error


def _input(data: bytes) -> int:
    """A descriptor to read `data` from. A file, not a pipe: it needs no writer while the command runs."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY)
    with (
        tempfile.TemporaryFile() if sys.platform != "linux" else open(os.memfd_create("stdin"), "w+b") as file
    ):
        file.write(data)
        file.seek(0)
        return os.dup(file.fileno())


def _outcome(child: Child, cwd: str | None) -> tuple[int | None, int | None]:
    """The exit code or the signal; raises an error if the command did not run."""
    match child.failure:
        case _, "deadline":
            raise SpawnFailed("the command was not started, because the lease of its run had expired.")
        case number, "directory":
            raise InvalidInput(
                f"cannot run a command in {cwd!r}: {os.strerror(number)}; "
                "create the directory, or name another."
            )
        case errno.E2BIG, _:
            raise InvalidInput(
                "the command and its environment are too long for the system; use a file or stdin."
            )
        case number, what:
            raise _NotExecuted(number, what)
    if not child.is_begun:
        raise SpawnFailed("the command was not started, because its supervisor was killed first; try again.")
    if child.status is None:
        return None, signal.SIGKILL  # the supervisor was killed, and the kernel killed the shell with it
    code = os.waitstatus_to_exitcode(child.status)
    return (code, None) if code >= 0 else (None, -code)


class Dialogue:
    """A program that reads what we write and whose output we hear. It cannot outlive this process.

    Make one with `SystemSpawn.talk`, and end it with `close`.
    """

    def __init__(
        self, child: Child, stdin: int, stdout: int, stderr: Capture, hear: Callable[[bytes], None]
    ) -> None:
        """`hear` gets what it prints, and then nothing (`b""`) once, when it will print no more."""
        self._child, self._stdin, self._stdout, self._stderr = child, stdin, stdout, stderr
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._unsent, self._sent = bytearray(), asyncio.Event()
        self._sent.set()
        self._is_deaf = self._is_silent = False
        os.set_blocking(stdin, False)
        os.set_blocking(stdout, False)
        self._loop.add_reader(stdout, self._read)

    @property
    def is_running(self) -> bool:
        """Whether the program still runs, as far as is known."""
        return not self._child.ended.done()

    @property
    def said(self) -> str:
        """The end of what it wrote to standard error."""
        return self._stderr.text()

    async def write(self, data: bytes) -> None:
        """Send it all; BrokenPipeError if the program reads no more. A cancelled caller sends it all, too."""
        if self._is_deaf:
            raise BrokenPipeError
        self._unsent += data
        self._send()
        await self._sent.wait()
        if self._is_deaf:
            raise BrokenPipeError

    async def wait_ended(self) -> None:
        """Wait for the program's end."""
        await asyncio.wait([self._child.ended])

    @property
    def status(self) -> int | None:
        """Its wait status; None if it runs, or if that is not known."""
        return self._child.status

    @property
    def failure(self) -> tuple[int, str] | None:
        """Why it was not started: an error number, and what could not be done."""
        return self._child.failure

    async def close(self, grace_s: float) -> None:
        """Close its input; then terminate it, then kill it. Nothing that it started is left afterwards."""
        self._deafen()
        try:
            await within(self._child.gone, grace_s)
        finally:
            try:
                await self._child.stop(grace_s)
            finally:
                self._release()

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._stdin, self._unsent[:CHUNK_BYTES])]
        except BlockingIOError:
            self._sent.clear()
            self._loop.add_writer(self._stdin, self._send)
            return
        except OSError:
            self._deafen()
            return
        self._loop.remove_writer(self._stdin)
        self._sent.set()

    def _deafen(self) -> None:
        """It reads no more, or has nothing more to read."""
        if not self._is_deaf:
            self._is_deaf = True
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._sent.set()

    def _read(self) -> bool:
        """Hear what is there; says whether there was anything."""
        try:
            data = os.read(self._stdout, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._silence()
            return False
        self._hear(data)
        return True

    def _silence(self) -> None:
        if not self._is_silent:
            self._is_silent = True
            self._loop.remove_reader(self._stdout)
            self._hear(b"")

    def _release(self) -> None:
        self._deafen()
        for _ in range(CHUNKS_LEFT_MAX):  # the pipe may hold its last words
            if self._is_silent or not self._read():
                break
        self._silence()
        os.close(self._stdout)
        self._stderr.close()
        self._child.close()

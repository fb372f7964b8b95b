"""The program between Onward and the commands it runs. `child` starts it; no module imports it.

It has two roles. The *nursery* is one small process per Onward process. For each command it forks a
*supervisor*, which starts the shell and lives exactly as long as any process that the shell started.

- Both are subreapers: a process whose parent ends, whatever session it moved to, becomes a child of its
  supervisor. So "no children" means that nothing is left, and no daemon escapes.
- Both watch a pidfd of the Onward process. When it dies, for whatever reason, they kill everything.
  A command is never unwatched: its supervisor starts before it.
- The kernel ends the shell with its supervisor. The nursery kills any other process that a killed supervisor
  leaves.
- Both hold a socket with the name of the Onward process, which shows others whether its commands have ended:
  until then no other process takes its runs.

Onward decides when to terminate and when to kill. A supervisor keeps only one time itself, the deadline of
the run's lease: the Onward process may be frozen when it passes, and then another worker runs the same step.
The deadline is on a clock that continues while the machine sleeps. This file imports little, to start
quickly.

To the nursery: one byte with four descriptors (control socket, stdin, stdout, stderr) asks for a supervisor.
To a supervisor: a length, then deadline (may be empty), directory, program, the number of its words, the
words (the first is its name) and the environment, separated by NUL; a program without a slash is looked up in
the environment's PATH. Later, one per line: "T" terminates everything, "D" with an instant moves the
deadline; the end of input kills everything.
From a supervisor, one per line: "+" about to start, "!errno what" could not start, "=status" the shell has
ended, "." nothing is left. The control socket closes only when nothing is left.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable
from typing import NoReturn

SHELL = "/bin/sh"
RETRY_MS = 50  # between two rounds of killing, for processes forked during the first
LOOK_MS = 500  # between looks at the deadline: its clock continues in the machine's sleep, a wait does not
AWAKE_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

# A service manager may signal every process of the service; ours end only when their work does.
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Signals ignored here would stay ignored in the command; Python itself ignores the last two.
RESTORED = (*IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)


class DescriptorWatch:
    """Waits for descriptors, for children and for the death of the Onward process."""

    def __init__(self, owner: int) -> None:
        self.is_orphaned = False
        self._owner = owner
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._poll = select.poll()
        self.add(self._pipe[0])
        if owner >= 0:
            self.add(owner)

    def add(self, fd: int) -> None:
        self._poll.register(fd, select.POLLIN)

    def drop(self, fd: int) -> None:
        self._poll.unregister(fd)

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Whether an added descriptor can be read; also returns for a child or the owner's death."""
        ready = {fd for fd, _ in self._poll.poll(timeout_ms)}
        if self._pipe[0] in ready:
            os.read(self._pipe[0], 4096)
        if self._owner in ready:
            self.is_orphaned = True
            self.drop(self._owner)
        return bool(ready - {self._pipe[0], self._owner})

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        close(*self._pipe)


class Nursery:
    """Forks supervisors, and kills the processes that a killed supervisor left."""

    def __init__(self, requests: socket.socket, owner: int) -> None:
        self.requests, self.owner, self.watch = requests, owner, DescriptorWatch(owner)
        self.controls: dict[int, int] = {}  # by supervisor
        self.strayed: list[int] = []  # controls of supervisors that died before their work was done

    def run(self) -> None:
        """Serve until the Onward process and its commands are gone."""
        self.watch.add(self.requests.fileno())
        is_open = True
        while is_open or self.controls or self.strayed:
            is_asked = self.watch.wait(RETRY_MS if self.strayed else None)
            if is_open and (self.watch.is_orphaned or (is_asked and not self.serve())):
                is_open = False
                self.watch.drop(self.requests.fileno())
            self.tidy()

    def serve(self) -> bool:
        """Fork one supervisor; False if there will be no more requests."""
        fds = array.array("i")
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        asked, ancillary, _, _ = self.requests.recvmsg(1, socket.CMSG_SPACE(4 * fds.itemsize), flags)
        for _, _, packed in ancillary:
            fds.frombytes(packed[: len(packed) - len(packed) % fds.itemsize])
        if len(fds) == 4:
            self.fork(*fds)
        else:  # this process has too many open descriptors; the caller sees the control socket close
            close(*fds)
        return bool(asked)

    def fork(self, control: int, *stdio: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            report(control, f"!{error.errno} supervisor")
            close(control, *stdio)
            return
        if pid == 0:
            self.watch.close()
            close(self.requests.detach(), *self.controls.values(), *self.strayed)
            Supervisor(control, stdio, self.owner).run()
        close(*stdio)
        self.controls[pid] = control

    def tidy(self) -> None:
        """Reap, and kill strays until none is left; only then close their control sockets."""
        for pid, status in reap():
            control = self.controls.pop(pid, None)
            if control is not None and status == 0:
                close(control)
            elif control is not None:
                self.strayed.append(control)
        if not self.strayed:
            return
        strays = descendants(besides=self.controls)
        send(signal.SIGKILL, strays)
        if not strays:
            close(*self.strayed)
            self.strayed.clear()


class Supervisor:
    """Starts one shell and ends when nothing that it started is left."""

    def __init__(self, control: int, stdio: tuple[int, ...], owner: int) -> None:
        self.control, self.stdio, self.owner = control, stdio, owner
        self.deadline_s: float | None = None
        self.heard = b""

    def run(self) -> NoReturn:
        code = 1
        try:
            adopt_orphans()
            self.watch = DescriptorWatch(self.owner)
            self.watch.add(self.control)
            self.supervise()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def supervise(self) -> None:
        request = self.read_request()
        if request is None:
            return
        deadline, directory, program, count, *rest = request
        words, variables = rest[: int(count)], rest[int(count) :]
        report(self.control, "+")
        self.deadline_s = instant(deadline)
        if self.left_ms() == 0:  # the Onward process was frozen after it sent the request
            report(self.control, f"!{errno.ETIME} deadline")
            return
        try:
            os.chdir(directory)
        except OSError as error:
            report(self.control, f"!{error.errno} directory")
            return
        environment = dict(variable.split(b"=", 1) for variable in variables)
        self.shell = self.start(program, words, environment)
        close(*self.stdio)
        self.tend()

    def read_request(self) -> list[bytes] | None:
        """The fields of the request; None if the Onward process is gone or no longer wants it."""
        received, size = b"", 4
        while len(received) < size:
            is_readable = self.watch.wait()
            # Not a byte more than the request: an order may already follow it.
            chunk = read(self.control, size - len(received)) if is_readable else b""
            if self.watch.is_orphaned or (is_readable and not chunk):
                return None
            received += chunk
            if len(received) == size == 4:
                size += int.from_bytes(received, "big")
        return received[4:].split(b"\0")

    def start(self, program: bytes, words: list[bytes], environment: dict[bytes, bytes]) -> int:
        """Fork the shell or other program and return its pid once it runs; report a failure and return 0."""
        reader, writer = os.pipe()
        supervisor = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            report(self.control, f"!{error.errno} shell")
            return 0
        if pid == 0:
            become_program(supervisor, self.stdio, writer, lambda: execute(program, words, environment))
        close(writer)
        failure = os.read(reader, 64)  # its end is closed by a successful exec
        close(reader)
        if failure:
            report(self.control, f"!{failure.decode('ascii')} shell")
            return 0
        return pid

    def tend(self) -> None:
        """Report what happens until no child is left; terminate and kill when told to."""
        is_killing = False
        while True:
            for pid, status in reap():
                if pid == self.shell:
                    self.shell = 0
                    report(self.control, f"={status}")
            if not has_children():
                return report(self.control, ".")
            if is_killing:
                self.signal(signal.SIGKILL)
            if self.watch.wait(RETRY_MS if is_killing else self.left_ms()) and not self.obey():
                is_killing = True
            is_killing = is_killing or self.watch.is_orphaned or self.left_ms() == 0

    def left_ms(self) -> int | None:
        """How long to wait before looking at the deadline; 0 when it has passed, None without one."""
        if self.deadline_s is None:
            return None
        left_s = self.deadline_s - time.clock_gettime(AWAKE_CLOCK)
        return min(math.ceil(left_s * 1000), LOOK_MS) if left_s > 0 else 0

    def obey(self) -> bool:
        """Do what Onward asks; False if it closed the connection, which means kill."""
        received = read(self.control, 64)
        if not received:
            self.watch.drop(self.control)
            return False
        *orders, self.heard = (self.heard + received).split(b"\n")
        for order in orders:
            if order == b"T":
                self.signal(signal.SIGTERM)
                self.signal(signal.SIGCONT)  # a stopped process would not receive it
            else:
                self.deadline_s = instant(order[1:])
        return True

    def signal(self, number: int) -> None:
        # The shell's own group first: that is immediate, and without /proc it is all we know.
        found = {self.shell: self.shell} if self.shell else {}
        send(number, found)
        send(number, {pid: group for pid, group in descendants().items() if group not in found})


def become_program(
    supervisor: int, stdio: Iterable[int], failed: int, execute: Callable[[], None]
) -> NoReturn:
    """Turn this fork into the program; if that fails, write the error number to `failed`."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # it died before the kernel was told
            os._exit(1)
        for target, fd in enumerate(stdio):
            os.dup2(fd, target)
        for number in RESTORED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        execute()
    except OSError as error:
        os.write(failed, str(error.errno).encode("ascii"))
    finally:
        os._exit(1)


def execute(program: bytes, words: list[bytes], environment: dict[bytes, bytes]) -> None:
    """Become a program, found as a shell finds it; returns only by raising the OSError that says why not."""
    places = [program]
    if b"/" not in program:
        path = environment.get(b"PATH", os.defpath.encode()).split(b":")
        places = [os.path.join(folder, program) for folder in path]
    number = errno.ENOENT
    for place in places:
        try:
            os.execve(place, words, environment)
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # the shell runs a script that names no interpreter
                os.execve(SHELL, [b"sh", place, *words[1:]], environment)
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                number = error.errno or number
    raise OSError(number, os.strerror(number))


def descendants(besides: Collection[int] = ()) -> dict[int, int]:
    """The process group of everything that descends from this process, except through `besides`."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            children.setdefault(int(fields[1]), []).append((int(name), int(fields[2])))
    found: dict[int, int] = {}
    waiting = [os.getpid()]
    while waiting:
        for pid, group in children.get(waiting.pop(), ()):
            if pid not in besides and pid not in found:
                found[pid] = group
                waiting.append(pid)
    return found


def send(number: int, processes: dict[int, int]) -> None:
    """Signal the groups of these processes, each group at once, so that none escapes by forking.

    A group is always inside one session, and each of these sessions started below us.
    """
    ours = os.getpgrp()
    for group in set(processes.values()) - {ours}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in [pid for pid, group in processes.items() if group == ours]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)  # just forked, and not yet in its own session


def reap() -> list[tuple[int, int]]:
    """The children that have ended, each with its wait status."""
    ended: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(child)
    return ended


def has_children() -> bool:
    """Whether any child is left, running or not."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def read(control: int, size: int) -> bytes:
    """What Onward sent; empty at the end, also if Onward died without reading our reports."""
    try:
        return os.read(control, size)
    except ConnectionResetError:
        return b""


def instant(text: bytes) -> float | None:
    """Read a deadline; empty means none."""
    return float(text) if text else None


def report(control: int, line: str) -> None:
    with contextlib.suppress(OSError):  # Onward is gone
        os.write(control, line.encode("ascii") + b"\n")


def close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def adopt_orphans() -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def prctl(option: int, value: int) -> None:
    """Set a property of this process; does nothing without Linux, where only groups are ended."""
    if sys.platform == "linux" and _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    # The last descriptor is only held: see `_Name` in `child.py`.
    requests, owner, name = (int(word) for word in sys.argv[1:4])
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for fd in (requests, owner, name):
        if fd >= 0:
            os.set_inheritable(fd, False)
    os.chdir("/")
    adopt_orphans()
    Nursery(socket.socket(fileno=requests), owner).run()


if __name__ == "__main__":
    main()

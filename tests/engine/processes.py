"""Processes as the tests of commands see them: families of them, told by their ids, watched by pidfds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from pathlib import Path

from onward.clock import NO_DEADLINE, Deadline
from onward.process import CommandExit, SystemSpawn

ENV = {"PATH": os.defpath}

# A shell, a child of it, a child in another session, and a daemon whose parent has ended. Each writes its
# process id; none of them minds SIGHUP or SIGTERM unless the command says so.
FAMILY = """
sleep 1000 & echo $!
setsid sh -c 'echo $$; exec sleep 1000' &
(setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' &)
"""


# The shell, its supervisor, the nursery, and us.
ANCESTORS = """
echo $$; echo $PPID
nursery=$(sed 's/.*) //' /proc/$PPID/stat | cut -d' ' -f2); echo $nursery
"""
OWNED_BY = ANCESTORS + "sed 's/.*) //' /proc/$nursery/stat | cut -d' ' -f2"


class Processes:
    """Processes by id, held by pidfds, so that waiting for their end cannot meet another process."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids
        self._fds = {pid: os.pidfd_open(pid) for pid in pids}

    def survivors(self, timeout_s: float = 0) -> list[int]:
        """Those that have not ended within this time."""
        waiting = dict(self._fds)
        poll = select.poll()
        for fd in waiting.values():
            poll.register(fd, select.POLLIN)
        while waiting and (ended := {fd for fd, _ in poll.poll(timeout_s * 1000)}):
            for pid in [pid for pid, fd in waiting.items() if fd in ended]:
                poll.unregister(waiting.pop(pid))
        return list(waiting)

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)


class Post:
    """A pipe with a name, to which commands write the ids of their processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        # Open for writing as well: then it does not end between two writers.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._heard = b""
        self._known: list[Processes] = []

    def read(self, count: int) -> Processes:
        while self._heard.count(b"\n") < count:
            select.select([self._fd], [], [])
            self._heard += os.read(self._fd, 4096)
        return self._take(count)

    async def receive(self, count: int) -> Processes:
        loop = asyncio.get_running_loop()
        while self._heard.count(b"\n") < count:
            readable = asyncio.Event()
            loop.add_reader(self._fd, readable.set)
            await readable.wait()
            loop.remove_reader(self._fd)
            self._heard += os.read(self._fd, 4096)
        return self._take(count)

    def _take(self, count: int) -> Processes:
        *lines, self._heard = self._heard.split(b"\n", count)
        self._known.append(Processes([int(line) for line in lines]))
        return self._known[-1]

    def close(self) -> None:
        os.close(self._fd)
        for processes in self._known:
            processes.close()


async def run(
    spawn: SystemSpawn,
    command: str,
    *,
    timeout_s: float | None = None,
    stdin: bytes = b"",
    deadline: Deadline = NO_DEADLINE,
) -> CommandExit:
    return await spawn.run(command, env=ENV, cwd=None, timeout_s=timeout_s, stdin=stdin, deadline=deadline)


def processes_with(variable: str) -> list[int]:
    """The processes that have this variable in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if variable.encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
    return found

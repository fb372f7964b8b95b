"""The identity of a process on a machine: enough to say later that it is certainly gone.

A process id alone proves nothing: ids are reused, and each container has its own. The identity therefore has
the machine, its boot, the id space, the id and the time at which the process started.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from functools import cache

import msgspec

from onward.errors import InvalidInput

BOOT_ID = "/proc/sys/kernel/random/boot_id"
PROCESS = "/proc/{}/stat"
PID_SPACE = "/proc/self/ns/pid"


class HostIdentity(msgspec.Struct, frozen=True):
    """One process, unique for ever. If the system does not say, `boot_id` is empty or `started` is 0."""

    host: str
    boot_id: str
    pid: int
    started: int  # clock ticks after the boot
    pid_space: str = ""  # containers on one machine share its boot, but each counts its own processes

    def text(self) -> str:
        """One line that `parse` turns back into the same identity."""
        # The host comes last, because it alone may contain a colon.
        return f"{self.boot_id}:{self.pid}:{self.started}:{self.pid_space}:{self.host}"

    @classmethod
    def parse(cls, text: str) -> HostIdentity:
        """The identity that `text()` wrote; anything else is `InvalidInput`."""
        try:
            boot_id, pid, started, pid_space, host = text.split(":", 4)
            return cls(host, boot_id, int(pid), int(started), pid_space)
        except ValueError:
            raise InvalidInput(
                f"{text!r} does not name a process; expected boot:pid:started:space:host."
            ) from None


def host_identity() -> HostIdentity:
    """This process; read each time, so that it is also right after a fork."""
    _, started = _state_and_start(os.getpid()) or ("", 0)
    return HostIdentity(_host(), boot_id(), os.getpid(), started, _pid_space())


@cache  # it does not change while this process lives
def boot_id() -> str:
    """The name of this boot of this machine; empty where the system has none."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def is_process_gone(identity: HostIdentity) -> bool | None:
    """True if that process and its commands have ended, False if not, None if this machine cannot know.

    A zombie has ended: it can do nothing more. A stopped process has not. Virtual machines cloned from one
    running image share their boot id, so clones that share a database need different host names.
    """
    if not _is_judge_of(identity):
        return None
    try:
        found = _state_and_start(identity.pid)
    except OSError:
        return None
    if found is None:
        # /proc may hide other users' processes; signal 0 sees them all.
        is_gone = None if is_taken(identity.pid) else True
    else:
        is_gone = not _is(found, identity.started)
    return is_gone and not _has_commands(identity.pid, identity.started)


def commands_name(pid: int, started: int) -> str:
    """The name of a socket that exists as long as a command of that process may run."""
    return f"onward/commands/{pid}/{started}"


def has_orphans(pid: int, started: int) -> bool:
    """Whether that process of this machine has ended, and its commands are still being killed."""
    try:
        found = _state_and_start(pid)
    except OSError:
        return False
    return (found is None or not _is(found, started)) and _has_commands(pid, started)


def _has_commands(pid: int, started: int) -> bool:
    """Whether commands of that process may run.

    The supervisors of its commands hold a socket without a file, which the kernel removes with the last of
    them. Without such sockets nothing is known, and the commands count as gone.
    """
    if sys.platform != "linux":
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind("\0" + commands_name(pid, started))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _is(found: tuple[str, int], started: int) -> bool:
    """Whether this is the process that started then, and it can still do something."""
    state, began = found
    return began == started and state not in "ZX"


def _is_judge_of(identity: HostIdentity) -> bool:
    is_complete = bool(identity.boot_id and identity.started > 0 and identity.pid > 0)
    mine = (_host(), boot_id(), _pid_space())
    return is_complete and (identity.host, identity.boot_id, identity.pid_space) == mine


def is_taken(pid: int) -> bool:
    """Whether some process has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """The state letter and the start time of a process; None if there is none to see."""
    try:
        with open(PROCESS.format(pid), "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in parentheses and may itself contain spaces and parentheses.
    fields = stat.rpartition(b")")[2].split()
    return fields[0].decode("ascii"), int(fields[19])


def _pid_space() -> str:
    try:
        return os.readlink(PID_SPACE).strip("pid:[]")
    except OSError:
        return ""


def _host() -> str:
    return os.uname().nodename.encode("utf-8", "replace").decode("utf-8")

"""Which process on which machine: enough to say later that it is certainly gone.

A process id alone proves nothing: ids are reused, and another container counts its own. The identity
therefore names the machine, its boot, the id space, the id and the instant the process started.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from onward.errors import InvalidInput

BOOT_ID = "/proc/sys/kernel/random/boot_id"
PROCESS = "/proc/{}/stat"
PID_SPACE = "/proc/self/ns/pid"


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """One process, for all time. An empty `boot_id` or a `started` of 0 means the system does not tell."""

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
    """This process, asked afresh, so that it is also right after a fork."""
    _, started = _state_and_start(os.getpid()) or ("", 0)
    return HostIdentity(_host(), boot_id(), os.getpid(), started, _pid_space())


def boot_id() -> str:
    """The name of this boot of this machine; empty where the system has none."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def is_process_gone(identity: HostIdentity) -> bool | None:
    """True when that process has ended, False while it runs, None when this machine cannot know.

    A zombie has ended: it can do nothing any more. A stopped process has not. Virtual machines cloned
    from one running image share their boot, so clones that are to share a database need their own host names.
    """
    if not _is_judge_of(identity):
        return None
    try:
        found = _state_and_start(identity.pid)
    except OSError:
        return None
    if found is None:
        # /proc may hide other users' processes; a signal that is never sent sees them all.
        return None if _is_taken(identity.pid) else True
    state, started = found
    return started != identity.started or state in "ZX"


def _is_judge_of(identity: HostIdentity) -> bool:
    is_complete = bool(identity.boot_id and identity.started > 0 and identity.pid > 0)
    mine = (_host(), boot_id(), _pid_space())
    return is_complete and (identity.host, identity.boot_id, identity.pid_space) == mine


def _is_taken(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """The state letter and the start of a process; None when no such process shows."""
    try:
        with open(PROCESS.format(pid), "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may itself contain spaces and parentheses.
    fields = stat.rpartition(b")")[2].split()
    return fields[0].decode("ascii"), int(fields[19])


def _pid_space() -> str:
    try:
        return os.readlink(PID_SPACE).strip("pid:[]")
    except OSError:
        return ""


def _host() -> str:
    return os.uname().nodename.encode("utf-8", "replace").decode("utf-8")

"""Starts a program that dies with its parent.

Run as a file by a bare interpreter: `python -I -S leash.py PARENT_PID UID GID PROGRAM ARGUMENT...`.
It drops root's rights if UID is not `-`, asks the kernel to send it SIGQUIT when its parent ends, and becomes
the program, with the same process id. It is not a function between fork and exec, because that is unsafe in a
process with threads. To the kernel, the *thread* that started the child is its parent: start it from one that
lives as long as the child should.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1


def command(program: Path, arguments: Sequence[str], *, uid_gid: tuple[int, int] | None) -> list[str]:
    """The command line that runs `program` on a leash held by this process."""
    uid, gid = map(str, uid_gid) if uid_gid else ("-", "-")
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), uid, gid, str(program), *arguments]


def become(parent_pid: int, uid: str, gid: str, program: str, arguments: Sequence[str]) -> None:
    """Turn this process into `program`; returns only by raising."""
    if uid != "-":
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    # After setuid, which clears it.
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(
        PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0
    ):
        raise OSError(ctypes.get_errno(), "cannot ask the kernel to end this process with its parent")
    if os.getppid() != parent_pid:
        raise ProcessLookupError(f"process {parent_pid} ended before {program} could be started")
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])

"""The program that ends an Onward process that cannot react to signals; `cli.signals` starts it.

Native code that holds the interpreter's lock keeps every thread of its process from running. The interpreter
still writes signal numbers into a pipe, which needs no lock. This program holds the other end of that pipe
and reads nothing: numbers that stay in the pipe mean that the process cannot react. After two of them, or
after one and the grace time, it kills the process. It ends with the process.
"""

from __future__ import annotations

import array
import fcntl
import os
import select
import signal
import sys
import termios

TICK_S = 0.1


def unread(pipe: int) -> int:
    """How many numbers are in the pipe."""
    number = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, number)
    return number[0]


def watch(pipe: int, owner: int, *, grace_s: float, force_s: float) -> None:
    """Until the owner is gone: wait for signals, and kill the owner if it does not read them."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while not any(event & select.POLLHUP for _, event in poll.poll()):
        waited_s = 0.0
        while (number := unread(pipe)) and os.getppid() == owner:
            if waited_s >= (force_s if number > 1 else grace_s + force_s):
                os.kill(owner, signal.SIGKILL)
                return
            select.select([], [], [], TICK_S)
            waited_s += TICK_S


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the owner
    pipe, owner = int(sys.argv[1]), int(sys.argv[2])
    watch(pipe, owner, grace_s=float(sys.argv[3]), force_s=float(sys.argv[4]))


if __name__ == "__main__":
    main()

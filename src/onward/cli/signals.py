"""Ctrl-C and its relatives: the first asks, the second does not."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def on_signals(call: Callable[[], None]) -> Iterator[None]:
    """Call at every signal that asks this process to stop, instead of being stopped by it.

    A SIGHUP that whoever started us chose to ignore stays ignored: that is what `nohup` is for.
    """
    loop = asyncio.get_running_loop()
    heard = [number for number in SIGNALS if number != signal.SIGHUP or not _is_ignored(number)]
    for number in heard:
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN

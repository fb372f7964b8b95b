"""The functions of users that still run in this process, by the idempotency key of their step.

A function stays here until it returns, whatever ended its attempt: a time-out, a stop, a lost lease.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One function. `told` says where it runs; `is_gone`: its event loop is closed, so it never ends."""

    told: str
    is_gone: Callable[[], bool] = _never


class Running:
    """Functions that have not returned. Safe to use from any thread."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start empty; also called in a fork of this process, which has none of its threads."""
        self._lock = threading.Lock()
        self._entries: dict[str, list[Entry]] = {}
        self._waiting: dict[str, list[Callable[[], object]]] = {}

    def begin(self, key: str, entry: Entry) -> None:
        with self._lock:
            self._entries.setdefault(key, []).append(entry)

    def end(self, key: str, entry: Entry) -> None:
        with self._lock:
            left = self._entries[key] = [other for other in self._left(key) if other is not entry]
            waiting = () if left else self._waiting.pop(key, ())
            if not left:
                del self._entries[key]
        for tell in waiting:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                tell()

    def has(self, key: str) -> bool:
        if key not in self._entries:
            return False
        with self._lock:
            return bool(self._left(key))

    def told(self, key: str) -> str:
        """Where the functions of this key run."""
        with self._lock:
            return " and ".join(dict.fromkeys(entry.told for entry in self._left(key)))

    def on_idle(self, key: str, tell: Callable[[], object]) -> None:
        with self._lock:
            if self._left(key):
                self._waiting.setdefault(key, []).append(tell)
                return
        tell()

    def _left(self, key: str) -> list[Entry]:
        """The functions of this key that may still run; forgets the others."""
        left = [entry for entry in self._entries.pop(key, ()) if not entry.is_gone()]
        if left:
            self._entries[key] = left
        return left


running = Running()
os.register_at_fork(after_in_child=running.forget)

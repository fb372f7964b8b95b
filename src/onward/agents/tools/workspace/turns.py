"""One writer at a time in a workspace: two edits of a file must not overwrite each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class Turns:
    """Locks by name. One that is not in use is forgotten."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._finding = threading.Lock()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Be the only one with this name."""
        with self._finding:
            lock = self._locks.get(name)
            if lock is None:
                lock = self._locks[name] = threading.Lock()
        with lock:
            yield

"""Every request that a scripted endpoint received: in memory, and in a file that survives a kill."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request. `is_whole`: its reply was sent to the end, as far as the endpoint can tell."""

    number: int
    at_us: int
    path: str
    model: str = ""
    body_hash: str
    body_bytes: int
    idempotency_key: str = ""
    has_key: bool = False
    """Whether a key came with it; the key itself is not kept."""
    prefix: str = ""
    """The beginning of the answer that came with it, of which the rest is asked for."""
    status: int = 0
    sent: int = 0
    """How many pieces of the reply were sent."""
    is_whole: bool = False


class Ledger:
    """Adds an entry when a request has come, and again when its reply has ended."""

    def __init__(self, path: str | None = None, *, told: Callable[[Entry], None] | None = None) -> None:
        self._path, self._told = path, told
        self._entries: dict[int, Entry] = {}

    @property
    def entries(self) -> list[Entry]:
        """The requests in the order in which they came, as they stand."""
        return list(self._entries.values())

    def put(self, entry: Entry) -> None:
        """Replace what is known of a request."""
        self._entries[entry.number] = entry
        if self._path is not None:
            line = msgspec.json.encode(entry) + b"\n"
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        if self._told is not None:
            self._told(entry)


def read_ledger(path: str) -> list[Entry]:
    """The requests in a file, each as it was last seen; none if nothing came yet."""
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]  # what follows the last newline is half an entry
    found = [msgspec.json.decode(line, type=Entry) for line in lines]
    return list({entry.number: entry for entry in found}.values())

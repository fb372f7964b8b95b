"""This process as an owner at a database: its name, its times, and what it holds."""

from __future__ import annotations

from collections.abc import Callable

from onward.store.port.stored import Write


class Holdings:
    """What this process holds: `runs` has the token of each, `effects` the key of each token.
    `is_registered`: others know this process as a worker.

    `owner` is its name; empty as long as it has none, and then it holds nothing. `lease_us` is how long a
    claim or renewal is good for. `now_us` replaces the database's clock where leases are judged.
    """

    def __init__(self, now_us: Callable[[], int | None], lease_us: int, owner: str = "") -> None:
        self.now_us, self.lease_us, self.owner = now_us, lease_us, owner
        self.runs: dict[str, int] = {}
        self.effects: dict[str, str] = {}
        self.is_registered = False

    def note(self, write: Write) -> None:
        """Learn from a write with a row whether this process holds the run now."""
        if write.row is not None and write.row.owner == self.owner:
            self.runs[write.run_id] = write.row.token
        else:
            self.runs.pop(write.run_id, None)

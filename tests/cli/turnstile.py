"""Where shell steps of any number of processes arrive, say who they are, and wait to be let through."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import NamedTuple

PATIENCE_S = 45


class Arrival(NamedTuple):
    """One step that stands at the turnstile."""

    run_id: str
    step: str
    attempt: int


class Turnstile:
    """Two named pipes: steps write a line into one, and take a byte out of the other."""

    def __init__(self, directory: Path) -> None:
        self._arriving, self._passing = directory / "arriving", directory / "passing"
        for path in (self._arriving, self._passing):
            os.mkfifo(path)
        # Open for both: then nobody waits for somebody to open the other end, and nothing ever ends.
        self._arrivals = os.open(self._arriving, os.O_RDWR | os.O_NONBLOCK)
        self._passes = os.open(self._passing, os.O_RDWR)
        self._heard = b""

    @property
    def command(self) -> str:
        """What a shell step does here."""
        says = "echo $ONWARD_RUN_ID $ONWARD_STEP $ONWARD_ATTEMPT"
        return f"{says} > {self._arriving}; read -r _ < {self._passing}"

    def arrival(self, patience_s: float = PATIENCE_S) -> Arrival:
        """The next step that arrives."""
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._arrivals], [], [], patience_s)
            assert ready, "nobody arrived"
            self._heard += os.read(self._arrivals, 4096)
        line, self._heard = self._heard.split(b"\n", 1)
        run_id, step, attempt = line.decode().split()
        return Arrival(run_id, step, int(attempt))

    def arrivals(self, number: int) -> list[Arrival]:
        return [self.arrival() for _ in range(number)]

    @property
    def is_empty(self) -> bool:
        """Whether nobody has arrived whom the test has not met."""
        return not self._heard and not select.select([self._arrivals], [], [], 0)[0]

    def let_through(self, number: int = 1) -> None:
        """Let so many go on; a shell reads a line byte by byte, so nobody takes two."""
        os.write(self._passes, b"\n" * number)

    def close(self) -> None:
        os.close(self._arrivals)
        os.close(self._passes)

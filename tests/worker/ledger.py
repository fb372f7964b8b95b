"""What commands really did, and when: each writes down that it is alive, many times a second."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import combinations
from pathlib import Path

PATIENCE_S = 45


class Ledger:
    """A file to which every process of a step appends its id and the time, for as long as it lives."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    @property
    def command(self) -> str:
        """A shell step whose first process never ends by itself; every later one soon does."""
        again = f"[ -s {self._path} ] && left=15"
        beat = f"echo $$ $(date +%s%N) >> {self._path}"
        return f"{again}; while {beat}; do sleep 0.02; left=$((left-1)); [ $left = 0 ] && exit 0; done"

    def lives(self) -> dict[str, tuple[int, int]]:
        """When each process first and last wrote, in nanoseconds."""
        beats: defaultdict[str, list[int]] = defaultdict(list)
        for line in self._path.read_text().splitlines():
            process, at_ns = line.split()
            beats[process].append(int(at_ns))
        return {process: (min(times), max(times)) for process, times in beats.items()}

    def wait_for_process(self, number: int) -> None:
        """Until so many processes have written."""
        deadline_s = time.monotonic() + PATIENCE_S
        while len(self.lives()) < number:
            assert time.monotonic() < deadline_s, f"{number} processes never came"
            time.sleep(0.02)

    def overlap_s(self) -> float:
        """For how long two processes were alive at once, in all."""
        lives = sorted(self.lives().values())
        return sum(max(0, first[1] - second[0]) for first, second in combinations(lives, 2)) / 1e9

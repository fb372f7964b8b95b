"""What commands really did, and when: each writes down that it is alive, many times a second."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

PATIENCE_S = 45


class Life(NamedTuple):
    """When a process first and last wrote, in nanoseconds."""

    began_ns: int
    ended_ns: int


class Ledger:
    """A file to which every process of a step appends its id and the time, for as long as it lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    @property
    def command(self) -> str:
        """A shell step whose first process never ends by itself; every later one soon does."""
        return f"[ -s {self.path} ] && left=15; {self.beating}"

    @property
    def beating(self) -> str:
        """A shell command that writes as often as the variable `left` says; for ever if it says nothing."""
        beat = f"echo $ONWARD_RUN_ID/$ONWARD_STEP $$ $(date +%s%N) >> {self.path}"
        return f"while {beat}; do sleep 0.02; left=$((left-1)); [ $left = 0 ] && exit 0; done"

    def lives(self) -> dict[str, list[Life]]:
        """The processes of each step."""
        beats: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for line in self.path.read_text().splitlines():
            step, process, at_ns = line.split()
            beats[step, process].append(int(at_ns))
        lives: defaultdict[str, list[Life]] = defaultdict(list)
        for (step, _), times in beats.items():
            lives[step].append(Life(min(times), max(times)))
        return lives

    def wait_for_process(self, number: int) -> None:
        """Until so many processes have written."""
        deadline_s = time.monotonic() + PATIENCE_S
        while sum(map(len, self.lives().values())) < number:
            assert time.monotonic() < deadline_s, f"{number} processes never came"
            time.sleep(0.02)

    def overlaps_s(self) -> dict[str, float]:
        """For how long two processes of one step were alive at once, for every step where some were."""
        found = {
            step: sum(
                max(0, first.ended_ns - second.began_ns) for first, second in combinations(sorted(lives), 2)
            )
            for step, lives in self.lives().items()
        }
        return {step: overlap_ns / 1e9 for step, overlap_ns in found.items() if overlap_ns}

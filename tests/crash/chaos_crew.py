"""The workers of a storm, and what is done to them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.store.proxy import Network

LEASE_S = 1.0
ROOT = Path(__file__).parents[2]


class Crew:
    """Worker processes that are replaced when they die."""

    def __init__(self, url: str, directory: Path, number: int, variables: Mapping[str, str]) -> None:
        """They work in the directory, with the settings that are there."""
        self._directory = directory
        self.output = directory / "workers.log"
        self._environment = {
            **os.environ,
            **variables,
            "CHAOS_LEDGER": str(directory / "ledger"),
            "PYTHONPATH": str(ROOT),
        }
        self.networks = [Network(url) for _ in range(number)]
        self.processes = [self._hire(place) for place in range(number)]
        self.frozen: dict[int, float] = {}
        self.hanging: dict[int, float] = {}

    def _hire(self, place: int) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "onward", "worker", "--app", "tests.crash.chaos_app:app")
        with self.output.open("ab") as log:
            return subprocess.Popen(
                [*command, "--concurrency", "4", "--lease", f"{int(LEASE_S * 1000)}ms", "--grace", "5s"],
                cwd=self._directory,
                env={**self._environment, "ONWARD_DB": self.networks[place].url},
                stdout=log,
                stderr=log,
            )

    def kill(self, dice: random.Random) -> None:
        place = dice.randrange(len(self.processes))
        victim = self.processes[place]
        self.frozen.pop(victim.pid, None)
        victim.kill()
        victim.wait()
        self.processes[place] = self._hire(place)

    def freeze(self, dice: random.Random) -> None:
        victim = dice.choice(self.processes)
        if victim.poll() is None and victim.pid not in self.frozen and self._is_enough_left():
            victim.send_signal(signal.SIGSTOP)
            self.frozen[victim.pid] = time.monotonic() + LEASE_S * dice.uniform(1.5, 3)

    def _is_enough_left(self) -> bool:
        """Whether others can take the runs of one more that is lost."""
        return len(self.frozen) + len(self.hanging) < max(1, len(self.processes) // 2)

    def hang(self, dice: random.Random) -> None:
        place = dice.randrange(len(self.networks))
        if place not in self.hanging and self._is_enough_left():
            self.networks[place].hang()
            self.hanging[place] = time.monotonic() + LEASE_S * dice.uniform(1.5, 3)

    def tend(self) -> None:
        """Continue whoever was frozen for long enough, heal networks, and replace whoever died."""
        for place, until_s in list(self.hanging.items()):
            if until_s <= time.monotonic():
                self.networks[place].heal()
                del self.hanging[place]
        for place, process in enumerate(self.processes):
            if self.frozen.get(process.pid, time.monotonic() + 1) <= time.monotonic():
                process.send_signal(signal.SIGCONT)
                del self.frozen[process.pid]
            if process.poll() is not None:
                self.processes[place] = self._hire(place)

    def dismiss(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for network in self.networks:
            network.close()

"""`make demo-steps`: run a pipeline, kill it with kill -9 halfway, resume it, and count what ran.

Every shell step of the pipeline appends its name to a ledger outside the database. At the end the ledger is
compared with the run's log: a step that had finished before the kill must be in it once per visit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ONWARD = [sys.executable, "-m", "onward"]
KILL_IN = "check"
PATIENCE_S = 60


def main() -> int:
    """Exit 0 if no finished step ran again."""
    with tempfile.TemporaryDirectory() as directory:
        ledger = Path(directory, "ledger.txt")
        ledger.touch()
        environment = {
            **os.environ,
            "ONWARD_DB": str(Path(directory, "demo.db")),
            "ONWARD_DEMO_LEDGER": str(ledger),
        }
        (Path(directory) / "onward.toml").write_text('tool_env = ["ONWARD_DEMO_LEDGER"]\n')
        demo = Demo(Path(directory), ledger, environment)
        return demo.play()


class Demo:
    """The demo, step by step."""

    def __init__(self, directory: Path, ledger: Path, environment: dict[str, str]) -> None:
        self.directory, self.ledger, self.environment = directory, ledger, environment

    def play(self) -> int:
        say("1. Start a pipeline: shell steps, simulated agents, a review that sends the draft back once.")
        run = self.start(
            "run",
            HERE / "research.dot",
            "--simulate",
            HERE / "script.json",
            "--real-tools",
            "--run-id",
            "demo",
        )
        self.wait_for(KILL_IN)
        say(f"2. kill -9 (process {run.pid}) in the middle of step {KILL_IN!r}.")
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        self.show("status")
        finished = Counter(step.split("#")[0] for step in self.run_json("show", "demo")["completed"])
        did = Counter(self.ledger.read_text().split())
        say("3. Resume. Finished steps do not run again; only the step that was cut off may.")
        self.show("resume", "demo")
        say("4. The proof: compare how often each step ran with how often it finished.")
        return self.judge(did, finished)

    def judge(self, did_before: Counter[str], finished_before: Counter[str]) -> int:
        did = Counter(self.ledger.read_text().split())
        after = self.run_json("show", "demo")
        finished = Counter(step.split("#")[0] for step in after["completed"])
        repeated = 0
        print(f"   {'step':<10} {'finished':>8} {'ran':>10}   before the kill: finished, ran")
        for step in did:
            cut_off = did_before[step] - finished_before[step]
            extra = did[step] - finished[step] - cut_off
            repeated += max(0, extra)
            before = f"{finished_before[step]}, {did_before[step]}"
            note = "   <- cut off by the kill, so it ran again" if cut_off else ""
            print(f"   {step:<10} {finished[step]:>8} {did[step]:>10}   {before}{note}")
        self.show("verify", "demo")
        print(f"\n   finished steps that ran again: {repeated}")
        return 0 if repeated == 0 and after["status"] == "completed" else 1

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        print("   $ onward", *arguments)
        return subprocess.Popen([*ONWARD, *map(str, arguments)], cwd=self.directory, env=self.environment)

    def show(self, *arguments: str) -> None:
        assert self.start(*arguments).wait() in (0, 75), "the command failed"

    def run_json(self, *arguments: str) -> dict[str, Any]:
        command = [*ONWARD, *arguments, "--json"]
        done = subprocess.run(
            command, cwd=self.directory, env=self.environment, check=True, capture_output=True
        )
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def wait_for(self, line: str) -> None:
        began = time.monotonic()
        while line not in self.ledger.read_text().split():
            if time.monotonic() - began > PATIENCE_S:
                sys.exit(f"the demo did not reach {line!r} in {PATIENCE_S} s")
            time.sleep(0.01)


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""kill -9 of the real process at random moments, until the pipeline has finished; then all is compared.

    python -m tests.crash.kill --kills 500

A pipeline of shell steps with a loop, a retry, a failure route and a gate runs through the real command
line. Each shell step first writes its step and attempt into a ledger outside the database. The process is
killed at a random instant and resumed by a new one, again and again. In the end:

- result and path are those of a run that nobody disturbed;
- no step that had finished at a kill was ever performed again;
- after every kill the log has no gap, its chain holds, and its row is what it folds to.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.errors import RunNotFound
from onward.model.run import AttemptState, Run, RunStatus
from onward.operations.here.verify import verify_run
from onward.read.lookup import completed_of
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.cli.nursery import INHERITED, Process, start

PATIENCE_S = 60
STEP_S = 0.02

PIPELINE = r"""
digraph crash {
    start [shape=Mdiamond]
    exit  [shape=Msquare]
    node  [shape=parallelogram]
    first [tool_command="@ printf 1"]
    count [tool_command="@ case $ONWARD_STEP in count#4) printf done;; *) printf again;; esac"]
    flaky [max_retries=3, tool_command="@ test $ONWARD_ATTEMPT -ge 3"]
    doomed [tool_command="@ exit 7"]
    rescue [tool_command="@ printf rescued"]
    choose [shape=diamond]
    ask   [shape=hexagon, label="Ship it?"]
    ship  [tool_command="@ printf shipped"]
    drop  [tool_command="@ printf dropped"]

    start -> first -> count
    count -> count  [condition="context.tool.output=again"]
    count -> flaky  [condition="context.tool.output=done"]
    flaky -> doomed -> choose
    choose -> rescue [condition="outcome=fail"]
    choose -> exit   [condition="outcome=success"]
    rescue -> ask
    ask -> ship [label="[Y] Yes"]
    ask -> drop [label="[N] No"]
    ship -> exit
    drop -> exit
}
"""


@dataclass
class Tally:
    """What a series of kills came to."""

    kills: int = 0
    before_creation: int = 0
    inside_a_step: int = 0
    runs: int = 0
    repeated_attempts: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills over {self.runs} runs ({self.before_creation} before the run existed, "
            f"{self.inside_a_step} inside a step), {self.repeated_attempts} cut-off attempts made again, "
            f"{len(self.problems)} problems"
        )


class Subject:
    """One run that is killed until it is done."""

    def __init__(self, directory: Path, db: str, run_id: str) -> None:
        self.run_id = run_id
        self.ledger = directory / f"{run_id}.ledger"
        self.ledger.touch()
        self.file = directory / f"{run_id}.dot"
        note = f"echo $ONWARD_STEP $ONWARD_ATTEMPT >> {self.ledger}; sleep {STEP_S};"
        self.file.write_text(PIPELINE.replace("@", note))
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(directory), **INHERITED, "ONWARD_DB": db}
        self.directory = directory

    def go(self, exists: bool) -> Process:
        words = ["resume", self.run_id] if exists else ["run", str(self.file), "--run-id", self.run_id]
        command = ["-m", "onward", *words, "--answers", "auto"]
        return start(command, self.directory, self.environment, stdout=subprocess.DEVNULL)

    def show(self) -> Shown | None:
        """The run as another process finds it."""
        return asyncio.run(look(self.environment["ONWARD_DB"], self.run_id))

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines()


@dataclass(frozen=True, slots=True)
class Shown:
    """What can be seen of a run: its state, its finished steps, and what is wrong with its log."""

    run: Run
    completed: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def final_state(self) -> tuple[object, ...]:
        """What must not depend on kills."""
        run = self.run
        return run.status, self.completed, run.context.plain(), run.outcomes.plain(), run.visits.plain()


async def look(db: str, run_id: str) -> Shown | None:
    """Read a run, and verify it whole: gapless, chained, and its row what its log folds to."""
    store = await open_store(db)
    try:
        folded = await Journal(store.log, SystemClock()).load(run_id)
        verified = await verify_run(store, run_id)
        return Shown(folded.run, tuple(await completed_of(store.log, run_id)), verified.problems)
    except RunNotFound:
        return None
    finally:
        await store.close()


def undisturbed(directory: Path, db: str) -> tuple[tuple[object, ...], float]:
    """The control: the result of a run that nobody killed, and how long it took."""
    subject = Subject(directory, db, "control")
    began = time.monotonic()
    process = subject.go(exists=False)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    took_s = time.monotonic() - began
    shown = subject.show()
    assert shown is not None
    return shown.final_state, took_s


def kill_until_done(subject: Subject, dice: random.Random, took_s: float, kills: int, tally: Tally) -> None:
    """Kill and resume one run until it has finished or `kills` kills are spent; then let it finish."""
    tally.runs += 1
    shown: Shown | None = None
    finished_at_kill: list[tuple[set[str], int]] = []
    while True:
        process = subject.go(exists=shown is not None)
        if tally.kills < kills:
            _kill(process, subject, dice, took_s)
        _, errors = process.communicate(timeout=PATIENCE_S)
        if process.returncode == -signal.SIGKILL:
            tally.kills += 1
        elif process.returncode != 0:
            tally.problems.append(f"{subject.run_id}: exit {process.returncode}: {errors.decode()}")
            return
        shown = subject.show()
        if shown is None:
            tally.before_creation += 1
            continue
        tally.problems += [f"{subject.run_id}: {problem}" for problem in shown.problems]
        if shown.run.status is RunStatus.COMPLETED:
            break
        tally.inside_a_step += any(step.state is AttemptState.OPEN for step in shown.run.open_steps.values())
        finished_at_kill.append((set(shown.completed), len(subject.lines())))
    _judge(subject, finished_at_kill, tally)


def _kill(process: Process, subject: Subject, dice: random.Random, took_s: float) -> None:
    """Kill at a random moment, unless the process ends first: of its whole life, or around one of its steps.

    On a busy machine a process may spend nearly all its life starting, so half of the kills wait for a step.
    """
    wait_s = dice.uniform(0, took_s)
    if dice.random() < 0.5:
        before, wait_s = subject.ledger.stat().st_size, dice.uniform(0, 2 * STEP_S)
        while process.poll() is None and subject.ledger.stat().st_size == before:
            time.sleep(STEP_S / 20)
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)


def _judge(subject: Subject, finished_at_kill: list[tuple[set[str], int]], tally: Tally) -> None:
    lines = subject.lines()
    for finished, length in finished_at_kill:
        again = {line.split()[0] for line in lines[length:]} & finished
        if again:
            tally.problems.append(f"{subject.run_id}: performed again after it had finished: {sorted(again)}")
    tally.repeated_attempts += sum(number - 1 for number in Counter(lines).values())


def campaign(db: str, *, kills: int, seed: int, prefix: str = "k") -> Tally:
    """Kill runs on one database until `kills` kills have been made."""
    dice, tally = random.Random(seed), Tally()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        db = db or str(directory / "crash.db")
        expected, took_s = undisturbed(directory, db)
        while tally.kills < kills and not tally.problems:
            subject = Subject(directory, db, f"{prefix}{tally.runs}")
            kill_until_done(subject, dice, took_s, kills, tally)
            shown = subject.show()
            if shown is not None and shown.final_state != expected:
                tally.problems.append(f"{subject.run_id}: {shown.final_state} instead of {expected}")
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    arguments = parser.parse_args()
    problems = 0
    with PostgresServer(fsync=False) as server:
        for name, db in (("SQLite", ""), ("PostgreSQL", server.create_database())):
            tally = campaign(db, kills=arguments.kills, seed=arguments.seed)
            print(f"{name}: {tally} (seed {arguments.seed})", *tally.problems, sep="\n  ", flush=True)
            problems += len(tally.problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

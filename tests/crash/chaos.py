"""Many workers, many runs, one PostgreSQL, and everything that can go wrong with them.

    python -m tests.crash.chaos --workers 8 --runs 500 --seed 7

Workers are killed, stopped for longer than their lease and continued; connections are cut; their network
hangs for longer than a lease; the database is restarted; MCP servers are killed. Each seed enables a random
subset of these. In the end every run has ended, every step has one outcome, tokens never fall, no effect
began after its step had finished, and no two commands of one step ran at the same time. A run that lost five
holders in a row has failed, as it should: it is resumed, as a person would. No request to a model was made
after its answer was stored, what agents said is whole and in order, and what was spent is what the logs add
up to. A person allows what agents ask for, and looks what came of uses in doubt: no tool was used again whose
answer was stored, what must not be repeated was done once, no use was under way twice at a time, and no
process of an MCP server is left. The database syncs its writes.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psycopg

from onward.model.events import StepFinished
from onward.operations.here.verify import verify_run
from onward.store.codec import unseal
from onward.store.port.store import Store
from onward.testing.model_endpoint import LedgerEntry
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.crash import chaos_agents, chaos_tools
from tests.crash.chaos_agents import endpoint, judge_chats, judge_requests, judge_spending, requests
from tests.crash.chaos_crew import Crew
from tests.crash.chaos_runs import ALLOWED, RESUMED, SETTLED, run_id_of, submit, tend
from tests.crash.chaos_tools import Traces, judge_tools, rules, uses_tools
from tests.worker.ledger import Ledger

FAULTS = ("kill", "freeze", "cut", "hang", "restart", "server")
REQUESTS = 4
"""About how many a run makes to a model."""
STEPS = 7
"""About how many of a run write into the ledger."""
# Most commands are short. The first one of some steps lasts longer than a lease, so that a lost worker's
# would still run when another begins.
BEATS = "left=5; case $ONWARD_RUN_ID in *[37]) grep -q $ONWARD_RUN_ID/$ONWARD_STEP @ || left=70;; esac"
SKEW_US = 2_000
PIPELINE = """digraph chaos {
  start [shape=Mdiamond]; exit [shape=Msquare]; node [type=work]
  first [type=tool, tool_command="@"]; again; flaky [max_retries=4]; last; TALK; USE
  fan [shape=component, type="", max_parallel=2]; join [shape=tripleoctagon, type=""]
  left [type=tool, tool_command="@"]; right
  start -> first -> again
  again -> again [condition="context.more=yes"]
  again -> flaky [condition="context.more=no"]
  flaky -> talk; talk -> use [condition="context.tools=yes"]; talk -> fan [condition="context.tools=no"]
  use -> fan; fan -> left -> join; fan -> right -> join; join -> last -> exit
}"""


@dataclass
class Counts:
    """What the chaos came to."""

    seed: int
    faults: tuple[str, ...]
    done: Counter[str] = field(default_factory=Counter)
    fenced: int = 0
    zombies: int = 0
    repeated: int = 0
    tended: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    requests: int = 0
    uses: int = 0
    overlaps: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    runs: int = 0

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {self.done[name]}" for name in self.faults) or "none"
        return (
            f"{self.runs} runs in {self.seconds:.0f} s; faults: {faults}; attempts made again: "
            f"{self.repeated}; resumed after too many losses: {self.tended[RESUMED]}; "
            f"fenced writers: {self.fenced}; zombie writes accepted: {self.zombies}; "
            f"commands: {self.commands}, two of a step at once: {self.overlaps}; "
            f"requests to a model: {self.requests}; uses of tools: {self.uses}, "
            f"allowed {self.tended[ALLOWED]}, settled after a doubt {self.tended[SETTLED]}; "
            f"{len(self.problems)} problems (seed {self.seed})"
        )


def chaos(
    *,
    workers: int,
    runs: int,
    seed: int,
    patience_s: float = 600,
    faults: str = "",
    fault_max: int | None = None,
) -> Counts:
    """One storm. It calms down after `fault_max` faults, spread over it, and when half of its time is over.

    On a machine so slow that a fault hits every step, it would have no end.
    """
    dice = random.Random(seed)
    chosen = tuple(faults.split(",")) if faults else tuple(name for name in FAULTS if dice.random() < 0.7)
    counts = Counts(seed, chosen, runs=runs)
    with tempfile.TemporaryDirectory() as place, PostgresServer(fsync=True) as server:
        directory, url = Path(place), server.create_database()
        (directory / "ledger").touch()
        traces = Traces(directory, Ledger(directory / "lives"))
        (directory / "onward.toml").write_text(traces.settings())
        began = time.monotonic()
        asyncio.run(submit(url, runs, _source(traces.lives)))
        answers = rules(_users(runs), _beating(traces.lives))
        with endpoint(directory, REQUESTS * runs, answers) as variables:
            crew = Crew(url, directory, workers, {**variables, **traces.variables})
            try:
                calm_s, deadline_s = began + patience_s / 2, began + patience_s
                _storm(
                    crew,
                    server,
                    url=url,
                    counts=counts,
                    traces=traces,
                    dice=dice,
                    calm_s=calm_s,
                    deadline_s=deadline_s,
                    fault_max=fault_max,
                )
            finally:
                crew.dismiss()
        counts.seconds = time.monotonic() - began
        counts.fenced = crew.output.read_text().count("was taken over by another process")
        made = requests(directory)
        counts.requests = len(made)
        asyncio.run(_judge(url, counts, (directory / "ledger").read_text().splitlines(), made, traces))
        _judge_commands(traces.lives, counts)
        if counts.problems:
            counts.problems.append(crew.output.read_text()[-2000:])
    return counts


def _users(runs: int) -> list[str]:
    """The runs that use tools."""
    return [run_id_of(number) for number in range(runs) if uses_tools(number)]


def _source(lives: Ledger) -> str:
    source = PIPELINE.replace("TALK", chaos_agents.NODE).replace("USE", chaos_tools.NODE)
    return source.replace("@", _beating(lives))


def _beating(lives: Ledger) -> str:
    return f"{BEATS.replace('@', str(lives.path))}; {lives.beating}"


def _judge_commands(lives: Ledger, counts: Counts) -> None:
    """What really ran: a command that was cut off may have run again, but never beside the first."""
    counts.commands = sum(map(len, lives.lives().values()))
    overlaps = lives.overlaps_s()
    counts.overlaps = len(overlaps)
    counts.problems += [f"{step}: two attempts ran at once for {s:.3f} s" for step, s in overlaps.items()]


def _storm(
    crew: Crew,
    server: PostgresServer,
    *,
    url: str,
    counts: Counts,
    traces: Traces,
    dice: random.Random,
    calm_s: float,
    deadline_s: float,
    fault_max: int | None,
) -> None:
    """Faults, one every now and then, until every run has ended or the storm is to calm down."""
    while time.monotonic() < deadline_s:
        left = asyncio.run(tend(url, traces, counts.tended))
        if left == 0:
            return
        time.sleep(dice.uniform(0.1, 0.6))
        crew.tend()
        is_calm = time.monotonic() > calm_s or counts.done.total() >= _due(traces, counts.runs, fault_max)
        if not counts.faults or left is None or is_calm:
            continue
        fault = dice.choice(counts.faults)
        if fault == "restart" and dice.random() < 0.8:
            continue  # it hits everybody
        counts.done[fault] += 1
        match fault:
            case "kill":
                crew.kill(dice)
            case "freeze":
                crew.freeze(dice)
            case "cut":
                _cut(url, dice)
            case "hang":
                crew.hang(dice)
            case "restart":
                server.restart()
            case "server":
                traces.kill_server(dice.choice)
    counts.problems.append("not every run ended in time")


def _due(traces: Traces, runs: int, fault_max: int | None) -> float:
    """How many faults there may be by now: none before a step has begun, and few while most have not.

    On a slow machine a short storm would else be over before the workers have started.
    """
    begun = len((traces.directory / "ledger").read_text().splitlines())
    if fault_max is None:
        return math.inf if begun else 0
    return min(fault_max, begun, math.ceil(fault_max * begun / (STEPS * runs)))


def _cut(url: str, dice: random.Random) -> None:
    """End a few connections of the workers, wherever they are in their conversation."""
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < %s",
                (dice.uniform(0.1, 0.6),),
            )
    except psycopg.Error:
        pass  # it was restarted at this very moment


async def _judge(
    url: str, counts: Counts, ledger: list[str], made: Sequence[LedgerEntry], traces: Traces
) -> None:
    store = await open_store(url)
    begun: dict[tuple[str, str], list[int]] = {}
    for line in ledger:
        run_id, step, _, at_us, _ = line.split()
        begun.setdefault((run_id, step), []).append(int(at_us))
    run_ids = [run_id_of(number) for number in range(counts.runs)]
    for run_id in run_ids:
        counts.problems += await _judged(store, run_id, begun, counts)
        counts.problems += await judge_requests(store, run_id, made, SKEW_US)
    counts.uses, wrong = await judge_tools(store, _users(counts.runs), traces, SKEW_US)
    counts.problems += wrong
    if not counts.problems:  # else some run may still be at work
        counts.problems += await judge_chats(store) + await judge_spending(store, run_ids)
    await store.close()


async def _judged(
    store: Store, run_id: str, begun: dict[tuple[str, str], list[int]], counts: Counts
) -> list[str]:
    problems = [f"{run_id}: {problem}" for problem in (await verify_run(store, run_id)).problems]
    records = await store.log.read(run_id, after=0, limit=2**31)
    fallen = sum(after.token < before.token for before, after in pairwise(records))
    counts.zombies += fallen
    if fallen:
        problems.append(f"{run_id}: a write with an older token was accepted")
    finished: dict[str, int] = {}
    for record in records:
        event = unseal(record)
        if isinstance(event, StepFinished):
            if event.step in finished:
                problems.append(f"{run_id}: {event.step} has two outcomes")
            finished[event.step] = record.at_us
    if "exit#1" not in finished:
        problems.append(f"{run_id}: it did not reach its exit: {records[-1].kind} {records[-1].body[:300]}")
    for step, at_us in finished.items():
        times = begun.get((run_id, step), [])
        counts.repeated += max(0, len(times) - (2 if step.startswith("flaky") else 1))
        if any(begun_us > at_us + SKEW_US for begun_us in times):
            problems.append(f"{run_id}: {step} began again after it had finished")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument(
        "--faults", default="", help=f"some of {','.join(FAULTS)}; the seed chooses otherwise"
    )
    arguments = parser.parse_args()
    counts = chaos(
        workers=arguments.workers, runs=arguments.runs, seed=arguments.seed, faults=arguments.faults
    )
    print(counts)
    for problem in counts.problems:
        print(f"  {problem}")
    return 1 if counts.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""kill -9 of processes whose agents talk to an endpoint that misbehaves; the endpoint's ledger is the judge.

    python -m tests.crash.agents.campaign --kills 500          --kills 0: one at every point of a run

First come the named points: every boundary of a use of a tool, of a workspace and of an MCP server among
them, and the time between an approval and its use. Half of the other kills hit one point after the other:
both sides of every append, claim and flush, and every boundary of a request. The rest comes at random moments
of a stream. Requests meet
refusals with and without a time to come back, cut, stalled, slow and malformed answers, and answers above
their ceiling. In the end:

- no request was made again whose answer had been stored, and none was made without its start in the log;
- no tool was used again whose answer had been stored, no payment and no use of an MCP server was made twice
  or left out, and no process of a server is left;
- no text went backwards, nothing followed an end, and a reader that reconnects anywhere misses nothing;
- what was spent is in the tables what the logs add up to, and nothing is reserved any more.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from onward.errors import RunNotFound
from onward.model.limits import NO_AMOUNTS
from onward.store.port.store import Store
from onward.testing.model_endpoint import LedgerEntry, ModelEndpoint, RequestLedger, serving_model
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.crash.agents.judging import (
    Seen,
    charged,
    events_of,
    judge_end,
    judge_uses,
    look,
)
from tests.crash.agents.story import PIPELINE, script
from tests.crash.agents.talker import CHAT, PROJECT, live
from tests.crash.agents.tools import NAMED, UseLedger
from tests.crash.reading import Reader, same_from_every_position

PATIENCE_S = 120.0
STREAM_S = 0.15
DATABASES = ("sqlite", "postgres")
POINTS = 400
"""About how many points a run passes; few kills hit only some of them, from its start to its end."""
_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(["tests.crash.agents.talker", "onward.agents.http"])


@dataclass
class Tally:
    """What a series of kills came to."""

    kills: int = 0
    runs: int = 0
    requests: int = 0
    in_flight: int = 0
    uses: int = 0
    chunks: int = 0
    points: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        points = ", ".join(f"{name} {number}" for name, number in sorted(self.points.items()))
        faults = ", ".join(f"{name} {number}" for name, number in sorted(self.faults.items()))
        return (
            f"{self.kills} kills of {self.runs} runs of agents ({points}); {self.requests} requests, "
            f"{self.in_flight} cut off by a kill, {self.uses} uses of tools; "
            f"faults: {faults}; {self.chunks} chunks; "
            f"{len(self.problems)} problems"
        )


class Talk:
    """One run that is killed until it is done."""

    def __init__(self, store: Store, db: str, directory: Path, endpoint: ModelEndpoint, run_id: str) -> None:
        self.store, self.db, self.run_id = store, db, run_id
        self.endpoint, self.directory = endpoint, directory
        self.seen: list[Seen] = []
        self.died, self.uses = directory / f"{run_id}.died", UseLedger(directory / f"{run_id}.uses")
        self.asked = asyncio.Event()

    async def life(
        self, reader: Reader, *, die_at: int | str | None = None, after_s: float | None = None
    ) -> str:
        """One process: how it died, or '' if it ended by itself. A reader reads along."""
        self.died.unlink(missing_ok=True)
        self.asked.clear()
        given = (self.db, self.endpoint.base_url, self.run_id, PIPELINE, self.died, self.uses.file, die_at)
        process = _fork.Process(target=live, args=given)
        process.start()
        ended = asyncio.create_task(asyncio.to_thread(process.join, PATIENCE_S))
        if after_s is not None:
            asked = asyncio.create_task(self.asked.wait())
            await asyncio.wait([ended, asked], return_when="FIRST_COMPLETED")
            asked.cancel()
            await asyncio.wait([ended], timeout=after_s)
            process.kill()
        while not ended.done():
            await reader.read()
            await asyncio.wait([ended], timeout=0.02)
        process.kill()  # for one that never ends
        await self.endpoint.until_idle()
        await reader.read()
        if process.exitcode == 0:
            return ""
        assert process.exitcode == -signal.SIGKILL, f"{self.run_id} ended with {process.exitcode}"
        self.seen.append(
            await look(self.store, self.run_id, self.endpoint.ledger.entries, len(self.uses.lines()))
        )
        return self.died.read_text() if self.died.exists() else "a moment of a stream"


@asynccontextmanager
async def talking(
    store: Store, db: str, directory: Path, run_id: str, dice: random.Random, tally: Tally
) -> AsyncIterator[Talk]:
    """A run with an endpoint of its own, which misbehaves as the dice say."""
    script_, faults = script(dice)
    told: list[Talk] = []

    def tell(entry: LedgerEntry) -> None:
        if told and not entry.sent:
            told[0].asked.set()

    async with serving_model(script_, ledger=RequestLedger(told=tell)) as endpoint:
        told.append(Talk(store, db, directory, endpoint, run_id))
        tally.faults.update(faults)
        yield told[0]


async def campaign(
    db: str, directory: Path, *, kills: int, seed: int, stride: int = 1, first: Sequence[str] = ()
) -> Tally:
    """Kill runs on one database: at the `first` points, at every `stride`th, then at random moments.

    Without a number of `kills`, there is one at each of the points, and no others.
    """
    dice, tally = random.Random(seed), Tally()
    db = db or str(directory / "crash.db")
    store = await open_store(db)
    await store.limits.change(f"chat/{CHAT}", {"tokens": 0})  # all runs are in it, and there are many
    reader = Reader(store, CHAT)
    points: Iterator[int | str] = chain(first, count(1, stride))
    while (not kills or tally.kills < kills) and not tally.problems:
        run_id, die_at = f"talk-{tally.runs}", next(points, None)
        if die_at is None and not kills:
            break
        is_over, tally.runs = die_at is None, tally.runs + 1
        async with talking(store, db, directory, run_id, dice, tally) as talk:
            if die_at is not None and not await _killed(talk, reader, tally, die_at=die_at):
                points = iter(())  # it has passed them all
            while (
                is_over
                and tally.kills < kills
                and await _killed(talk, reader, tally, after_s=dice.uniform(0, STREAM_S))
            ):
                pass
            await talk.life(reader)
            tally.requests += len(talk.endpoint.ledger.entries)
            tally.in_flight += sum(
                not entry.is_whole and entry.status == 200 for entry in talk.endpoint.ledger.entries
            )
            tally.uses += len(talk.uses.lines()) // 2
            tally.problems += await judge_end(store, run_id, reader, talk.seen, talk.endpoint.ledger.entries)
            tally.problems += await judge_uses(store, run_id, talk.uses, talk.seen)
        if kills and tally.kills >= len(first) + (kills - len(first)) // 2:
            points = iter(())
    tally.problems += await _judge_scopes(store, tally.runs)
    tally.chunks = await same_from_every_position(store, CHAT)
    await store.close()
    return tally


async def _killed(
    talk: Talk, reader: Reader, tally: Tally, *, die_at: int | str | None = None, after_s: float | None = None
) -> bool:
    """Whether the process was killed before it had ended by itself."""
    how = await talk.life(reader, die_at=die_at, after_s=after_s)
    if how:
        tally.kills += 1
        tally.points[how] += 1
    return bool(how)


async def _judge_scopes(store: Store, runs: int) -> list[str]:
    """What was spent in the chat and the project is what the logs of all runs add up to."""
    total = NO_AMOUNTS
    for number in range(runs):
        try:
            total = total.plus(charged(await events_of(store, f"talk-{number}")))
        except RunNotFound:
            return [f"talk-{number} was never created"]
    found = await store.limits.read([f"chat/{CHAT}", f"project/{PROJECT}"])
    return [
        f"{scope.id}: spent {scope.spent}, reserved {scope.reserved}; the logs say {total}"
        for scope in found
        if (scope.spent, scope.reserved) != (total, NO_AMOUNTS)
    ]


async def on_each(databases: Sequence[str], kills: int, seed: int) -> int:
    """A campaign on each of the databases; returns how many problems there were."""
    problems, stride = 0, max(1, 2 * POINTS // kills) if kills else 1
    first = NAMED[: kills // 2] if kills else NAMED
    with PostgresServer(fsync=False) as server, tempfile.TemporaryDirectory() as place:
        for name in databases:
            db = server.create_database() if name == "postgres" else ""
            directory = Path(place) / name
            directory.mkdir()
            tally = await campaign(db, directory, kills=kills, seed=seed, stride=stride, first=first)
            print(f"{name}: {tally} (seed {seed})", *tally.problems, sep="\n  ", flush=True)
            problems += len(tally.problems)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=500, help="0: one at every point that a run passes")
    parser.add_argument("--on", choices=DATABASES, help="one database instead of both")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    given = parser.parse_args()
    databases = DATABASES if given.on is None else (given.on,)
    return 1 if asyncio.run(on_each(databases, given.kills, given.seed)) else 0


if __name__ == "__main__":
    sys.exit(main())

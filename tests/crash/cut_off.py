"""How much of an answer a reader finds whose process was killed while it came.

    python -m tests.crash.cut_off --kills 60

An agent's answer comes as 40 tokens, one in 20 ms. Its process dies by `kill -9` at a random moment. What the
messages then hold is compared with what the endpoint had sent.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import signal
import sys
import tempfile
from pathlib import Path

from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.control.requests import StartRequest
from onward.engine.engine import Engine
from onward.machine.definition import AGENT
from onward.model.chat import chat_of_run
from onward.testing.model_endpoint import serving_model
from onward.testing.postgres import PostgresServer
from onward.testing.script import ModelScript, ScriptedReply
from onward.wiring import open_store
from tests.agents.asking import NAME, models_at
from tests.crash.reading import Reader

TOKENS = 40
EACH = 5
"""Characters of a token."""
PACE_S = 0.02
PATIENCE_S = 60.0
TEXT = "".join(f"{number:04d} " for number in range(TOKENS))
ANSWER = ScriptedReply(text=TEXT, chunk=EACH, delay_s=PACE_S)
PIPELINE = f"""
digraph story {{
    start [shape=Mdiamond]; exit [shape=Msquare]
    tell [prompt="Tell a story.", llm_model="{NAME}", max_tokens=1000, files=off]
    start -> tell -> exit
}}
"""
_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(["tests.agents.asking", "onward.agents.http"])


class Paced(SystemClock):
    """The endpoint's clock. It waits once before each token but the first, so its waits count the tokens."""

    def __init__(self) -> None:
        self.sent, self.began = 0, asyncio.Event()

    async def wait_s(self, seconds: float, woken: asyncio.Event) -> None:
        self.sent += 1
        self.began.set()
        await super().wait_s(seconds, woken)


def live(db: str, base_url: str, run_id: str) -> None:
    """One life of a process that asks for the answer."""
    asyncio.run(_ask(db, base_url, run_id))


async def _ask(db: str, base_url: str, run_id: str) -> None:
    store, models = await open_store(db), models_at(base_url)
    clock, ids, dice = SystemClock(), SystemIds(), SystemDice()
    agent = AgentHandler(models, read_prices({}), clock, dice)
    engine = Engine(store, clock=clock, ids=ids, dice=dice, handlers={AGENT: agent})
    await engine.start(engine.sources.prepare(PIPELINE, "<story>"), StartRequest(run_id=run_id))


async def share_found(db: str, kills: int, dice: random.Random) -> float:
    """The share of all text that was sent which a reader finds after so many kills."""
    store, sent, found = await open_store(db), 0, 0
    try:
        for number in range(kills):
            run_id, clock = f"story-{number}", Paced()
            async with serving_model(ModelScript(default=ANSWER), clock=clock) as endpoint:
                process = _fork.Process(target=live, args=(db, endpoint.base_url, run_id))
                process.start()
                await asyncio.wait_for(clock.began.wait(), PATIENCE_S)
                await asyncio.sleep(dice.uniform(0, TOKENS * PACE_S))
                process.kill()
                sent += min(clock.sent, TOKENS) * EACH
                await asyncio.to_thread(process.join, PATIENCE_S)
                await endpoint.until_idle()
            assert process.exitcode in (0, -signal.SIGKILL), "it ended by itself"
            reader = Reader(store, chat_of_run(run_id))
            await reader.read()
            (text,) = reader.texts.values()
            assert TEXT.startswith(text), "it says what was never said"
            found += len(text)
    finally:
        await store.close()
    return found / sent


async def both(kills: int) -> None:
    """The same on each database."""
    seed = random.randrange(1_000_000)
    with PostgresServer() as server, tempfile.TemporaryDirectory() as place:
        databases = (("SQLite", str(Path(place) / "cut.db")), ("PostgreSQL", server.create_database()))
        for name, db in databases:
            share = await share_found(db, kills, random.Random(seed))
            print(f"{name}: {kills} kills, a reader finds {share:.0%} of the text (seed {seed})", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=60)
    asyncio.run(both(parser.parse_args().kills))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.hand DB AT_ONCE`: a worker that begins when told to and says when nothing is left to do.

It prints `ready` when it is connected. Each line that it then reads is one shift, of which it
prints how many runs it drove.
"""

from __future__ import annotations

import asyncio
import sys

from bench.pipelines import engine_on
from onward.clock import SystemClock
from onward.engine.stop import StopSwitch
from onward.wiring import open_store
from onward.worker import Worker


async def work(db: str, at_once: int) -> None:
    """Shift after shift, until nobody asks for another one."""
    store = await open_store(db)
    engine = engine_on(store)
    await store.runs.count()  # connected, and its statements known
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        worker = Worker(engine, SystemClock(), StopSwitch(), concurrency=at_once, until_idle=True)
        print((await worker.run()).executed, flush=True)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2])))

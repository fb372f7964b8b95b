"""A process whose workers spend until a limit stops them.

`python -m tests.crash.spender DB NAME WORKERS SCOPE...`

Each worker holds a run and makes calls in all scopes. One that finds only the reservations of others in its
way waits, and takes over runs whose holder died with a reservation, as a worker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Sequence
from functools import partial

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.engine.log import Folded
from onward.errors import LimitReached, Refused
from onward.machine.decide.requests import HolderView, decide_claim
from onward.model.events import Event
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.conformance.limits import beginning, ended, used, working

RESERVED_MAX = 40
AGAIN_S = 0.02


async def take_over(store: Store, run_id: str) -> None:
    """Claim a run whose holder died, which settles what it had reserved."""
    journal = Journal(store.log, SystemClock())

    claim = partial(_claim, store.leases.owner)
    with contextlib.suppress(Refused):  # another worker was first
        await journal.control(run_id, claim, append_id=f"{store.leases.owner} {run_id}")


def _claim(asker: str, folded: Folded) -> Sequence[Event]:
    holder = folded.holder
    view = HolderView(holder.owner if holder else None, holder is not None and holder.is_alive, asker)
    return decide_claim(folded.run, view)


async def spend(store: Store, name: str, scopes: list[str]) -> None:
    """Make calls until a limit is spent."""
    chance = random.Random(name)
    run, number = await working(store, name), 0
    while True:
        tokens = chance.randint(1, RESERVED_MAX)
        number += 1
        write, begun = beginning(run, *scopes, call=f"m{number}", tokens=tokens, cost_micro=0)
        try:
            await store.log.append(write, run.lease)
        except LimitReached as reached:
            if not reached.fits_spent:
                print("stopped", name, flush=True)
                return
            for run_id in await store.limits.abandoned(reached.scope):
                await take_over(store, run_id)
            await asyncio.sleep(AGAIN_S)
            continue
        run = await ended(store, begun, f"m{number}", usage=used(chance.randint(1, tokens)), cost_micro=0)
        print("called", name, flush=True)


async def main(db: str, name: str, workers: str, *scopes: str) -> None:
    stores = [await open_store(db) for _ in range(int(workers))]
    spending = (spend(store, f"{name}-{n}", [*scopes]) for n, store in enumerate(stores))
    await asyncio.gather(*spending)
    for store in stores:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A process that competes with others for a database: `python -m tests.store.contender DB TASK ARGUMENT...`.

It says `ready` when it is connected, begins when it is sent a line, prints what came of it, and stays alive
until its input is closed: the runs of a holder that ended would be taken over by the others, and rightly.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.engine.log import Folded
from onward.errors import Refused, StaleHistory
from onward.machine.decide.requests import HolderView, decide_claim
from onward.model.events import CancelRequested, Event, PauseRequested
from onward.store.codec import content_hash
from onward.store.port.log import Held, StoredEvent, Write
from onward.store.port.retention import NewSource
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.conformance.drafts import ALL, Draft, created, held, step, stepped


def say(*words: object) -> None:
    print(*words, flush=True)


async def create(store: Store, *run_ids: str) -> None:
    """Make runs that nobody holds."""
    for run_id in run_ids:
        await created(store, run_id)
    say("created")


async def claim(store: Store, *run_ids: str) -> None:
    """Try to claim each run as the engine does, and say `won` or who holds it."""
    journal = Journal(store.log, SystemClock())
    for run_id in run_ids:
        try:
            claiming = partial(_claim, store.leases.owner)
            await journal.control(run_id, claiming, append_id=store.leases.owner)
            say(run_id, "won", store.leases.owner)
        except Refused as refusal:
            say(run_id, "lost", refusal.details["holder"])


def _claim(asker: str, folded: Folded) -> Sequence[Event]:
    holder = folded.holder
    holder_view = HolderView(holder.owner if holder else None, holder is not None and holder.is_alive, asker)
    return decide_claim(folded.run, holder_view)


async def append(store: Store, name: str, runs: str, times: str) -> None:
    """Create some runs and append to all of them at once; say where each log ends."""
    begun = [await held(store, f"{name}-{number}") for number in range(int(runs))]
    for run in await asyncio.gather(*(stepped(store, run, times=int(times)) for run in begun)):
        say(run.id, *run.position[:1], run.position.hash.hex())


async def hold(store: Store, run_id: str) -> None:
    """Append to a run as fast as possible until somebody asks to cancel it; say how often."""
    run, commits = await held(store, run_id), 0
    say("holding")
    while run.run.pending.cancel_by is None:
        write, after = run.then(*step(run), with_row=False)
        try:
            await store.log.append(write, run.lease)
            run, commits = after, commits + 1
        except StaleHistory:
            run = run.after(await _tail(store, run))
    say(commits)


async def ask(store: Store, run_id: str, times: str) -> None:
    """Ask a busy holder for something again and again; say how much it wrote while each request waited."""
    journal = Journal(store.log, SystemClock())
    folded = await journal.load(run_id)
    run = Draft(folded.run, folded.position)
    for number in range(int(times)):
        run = run.after(await _tail(store, run))
        waited: list[int] = []

        def decide(
            held: Held, tail: Sequence[StoredEvent], run: Draft = run, waited: list[int] = waited
        ) -> Write:
            waited.append(len(tail) // 2)
            return run.after(tail).then(PauseRequested(after="step", by=store.leases.owner))[0]

        await store.log.control(
            run_id, since=run.position.seq, append_id=f"{store.leases.owner} {number}", decide=decide
        )
        say(*waited)


async def cancel(store: Store, run_id: str) -> None:
    """Ask the holder to give up."""
    journal = Journal(store.log, SystemClock())
    await journal.control(run_id, lambda *_: (CancelRequested(by="tests"),), append_id="cancel")
    say("asked")


async def register(store: Store, name: str, times: str) -> None:
    """Add sources to one pipeline, some of which others add as well; say which version each is."""
    for number in range(int(times)):
        for content in (f"{name} {number}".encode(), f"shared {number}".encode()):
            new = NewSource("site", content_hash(content), content, "site.dot", name)
            version = (await store.pipelines.add(new, at_us=number)).version
            say(version.version, version.hash)


async def redeem(store: Store, *codes: str) -> None:
    """Try to use up each code; say whether it was ours."""
    for code in codes:
        say(code, "lost" if await store.principals.redeem(code, now_us=1) is None else "won")


async def _tail(store: Store, run: Draft) -> Sequence[StoredEvent]:
    return await store.log.read(run.id, after=run.position.seq, limit=ALL)


TASKS = {task.__name__: task for task in (create, claim, append, hold, ask, cancel, register, redeem)}


async def main(db: str, task: str, *arguments: str) -> None:
    store = await open_store(db)
    say("ready", store.leases.owner)
    sys.stdin.readline()
    await TASKS[task](store, *arguments)
    sys.stdin.readline()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A process that streams into one chat until it is killed, and says what it was told is durable.

    python -m tests.crash.streamer DATABASE CHAT POINT RUN…

Whoever comes after takes its runs over, which ends the messages that it had begun. It kills itself at a
POINT: before its first flush at 1, after it at 2, and so on; never at 0.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.engine.messages import Flusher
from onward.errors import RunNotFound
from onward.model.call import CallFinished, CallLost, CallStarted, CallStatus, Streamed
from onward.model.chat import ChunkKind, message_id
from onward.model.events import Event, RunClaimed, StepStarted
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.conformance.drafts import Draft, held
from tests.conformance.faults import FaultyStore

STEP = "start#1"
PAUSE_S = 0.004
TOKENS = 60


def token(call: int, number: int) -> str:
    """What is written next: every text of a call is a beginning of the same."""
    return f"{call}:{number};"


async def stream_for_ever(store: Store, flusher: Flusher, chat: str, run_id: str) -> None:
    """Take the run, then stream one call after another."""
    draft = await _taken(store, run_id)
    for call in range(1, 1_000):
        number = 1 + max(draft.run.token, 1)  # a try that was never made
        message = message_id(run_id, STEP, f"c{call}", number)
        streamed = Streamed(chat=chat, message=message)
        begun = CallStarted(
            step=STEP, attempt=1, call=f"c{call}", number=number, type="model", streamed=streamed
        )
        draft = await _append(store, draft, begun)
        with flusher.open(streamed, run_id=run_id, token=draft.run.token) as stream:
            length = 0
            for at in range(TOKENS):
                stream.write(ChunkKind.TEXT, token(call, at))
                length += len(token(call, at))
                await asyncio.sleep(0.0005)
                if at % 7 == 6:
                    assert await stream.drain()
                    print("durable", message, length, flush=True)
            assert await stream.drain()
            over = CallFinished(
                step=STEP, attempt=1, call=f"c{call}", number=number, status=CallStatus.OK, value=length
            )
            draft = await _append(store, draft, over)
        print("complete", message, length, flush=True)


async def _taken(store: Store, run_id: str) -> Draft:
    begun = StepStarted(step=STEP, node="start", attempt=1)
    try:
        folded = await Journal(store.log, SystemClock()).load(run_id)
    except RunNotFound:
        return await _append(store, await held(store, run_id), begun)
    draft = Draft(folded.run, folded.position)
    lost: list[Event] = [
        CallLost(step=step.step, call=call, number=opened.number, why="killed")
        for step in folded.run.open_steps.values()
        if step.calls is not None
        for call, opened in step.calls.open.items()
    ]
    claim = RunClaimed(token=draft.run.token + 1, worker=store.leases.owner, lost=True)
    write, after = draft.then(*lost, claim)
    append_id = f"claim-{claim.token}"
    await store.log.control(run_id, since=draft.position.seq, append_id=append_id, decide=lambda *_: write)
    return await _append(store, after, begun)


async def _append(store: Store, draft: Draft, *events: Event) -> Draft:
    write, after = draft.then(*events)
    await store.log.append(write, draft.lease)
    return after


class DoomedFlushes(FaultyStore):
    """A store whose flushes have points before and after them; at one of these the process dies."""

    def __init__(self, store: Store, die_at: int) -> None:
        super().__init__(store)
        self._die_at, self._passed = die_at, 0

    async def call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name != "messages.flush":
            return await call()
        self._pass()
        answer = await call()
        self._pass()
        return answer

    def _pass(self) -> None:
        self._passed += 1
        if self._passed == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


async def main(db: str, chat: str, point: str, *run_ids: str) -> None:
    """Stream into all of the runs at once."""
    store = DoomedFlushes(await open_store(db), int(point))
    flusher = Flusher(store.messages, SystemClock(), pause_s=PAUSE_S)
    await asyncio.gather(*(stream_for_ever(store, flusher, chat, run_id) for run_id in run_ids))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Many readers of a server that is killed again and again, and what each of them was told.

The runs are another process's, so they go on while there is no server; readers come back as browsers do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from onward.model.call import CallLost
from onward.model.events import AttemptInterrupted, RunCancelled
from onward.store.port.store import Store
from tests.conformance.drafts import Draft, held, stepped
from tests.conformance.messages import STEP, appended, growth, speaking
from tests.server.following import assert_contiguous, parsed


@dataclass
class Where:
    """Where the server is just now."""

    port: int
    token: str


@dataclass
class Browser:
    """Follows a stream until it ends, coming back after whatever it saw last."""

    where: Where
    path: str
    after: int = 0
    ids: list[int] = field(default_factory=list)
    connections: int = 0
    is_over: bool = False
    resets: int = 0

    async def follow(self) -> None:
        while not self.is_over:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._connection()
            await asyncio.sleep(0.02)

    async def _connection(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.where.port)
        try:
            last = self.ids[-1] if self.ids else self.after
            writer.write(
                f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.where.port}\r\n"
                f"Authorization: Bearer {self.where.token}\r\nAccept: text/event-stream\r\n"
                f"Last-Event-ID: {last}\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if status == 204:
                self.is_over = True
                return
            assert status == 200, head
            self.connections += 1
            await self._hear(reader)
        finally:
            writer.close()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        text = ""
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            text += (await reader.readexactly(size + 2))[:-2].decode()
            whole, _, text = text.rpartition("\n\n")
            for one in parsed(whole):
                if one.id is not None:
                    self.ids.append(one.id)
                self.is_over |= one.event == "end"
            if not size:
                return


class Writers:
    """A process whose runs take steps and speak, as fast as the database lets them, until it is enough."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.steps: dict[str, Draft] = {}
        self.said: dict[str, Draft] = {}
        self._flushed: dict[str, int] = {}

    async def begin(self, number: int) -> None:
        for one in range(number):
            self.steps[f"steps-{one}"] = await held(self._store, f"steps-{one}")
            self.said[f"says-{one}"] = await speaking(self._store, run_id=f"says-{one}")
        self._flushed = dict.fromkeys(self.said, 0)

    async def write(self, enough: asyncio.Event) -> None:
        while not enough.is_set():
            for run, draft in self.steps.items():
                self.steps[run] = await stepped(self._store, draft)
            batch = []
            for run, draft in self.said.items():
                self._flushed[run] += 1
                batch.append(growth(draft, f"{self._flushed[run]};", first=self._flushed[run]))
            await self._store.messages.flush(batch, 1)
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        """End all runs, so that their streams end."""
        for run, draft in self.steps.items():
            self.steps[run] = await appended(self._store, draft, RunCancelled(reason="user", by="tests"))
        for run, draft in self.said.items():
            lost = CallLost(step=STEP, call="m1", number=1, why="over")
            cut_off = AttemptInterrupted(step=STEP, attempt=1, why="over")
            over = RunCancelled(reason="user", by="tests")
            self.said[run] = await appended(self._store, draft, lost, cut_off, over)

    async def check(self, browsers: Sequence[Browser]) -> int:
        """Fail unless each was told everything once and in order; returns how much that was."""
        chats = {f"run/{run}": run for run in self.said}
        ends = await self._store.messages.positions(list(chats))
        wanted = {f"/api/messages?of={run}": ends[chat] for chat, run in chats.items()}
        wanted |= {f"/api/runs/{run}/events": draft.position.seq for run, draft in self.steps.items()}
        for one in browsers:
            assert_contiguous(one.ids, one.after)
            assert (one.ids[-1] if one.ids else one.after) == wanted[one.path], one.path
        return sum(len(one.ids) for one in browsers)

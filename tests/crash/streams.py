"""kill -9 of a process that streams: at both sides of every flush, and at random moments.

    python -m tests.crash.streams --kills 120

One process after another streams into the same chat and takes over what the one before it left. The first
dies before its first flush, the second after it, the third before its second, and so on. A reader reads
along. In the end:

- what a process was told is durable is there, and each text is a beginning of what was to be said;
- no text went backwards, nothing followed an end, and a reader that reconnects anywhere misses nothing;
- the logs and the tables say the same.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from onward.model.row import MessageState
from onward.operations.here.verify import verify_run
from onward.store.port.messages import MessageQuery
from onward.store.port.store import Store
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.crash.reading import Reader, same_from_every_position
from tests.crash.streamer import TOKENS, token

CHAT = "crash"
RUNS = ("run-a", "run-b", "run-c")
LOOK_S = 0.005


class Streams:
    """A chat whose writers are killed one after the other."""

    def __init__(self, store: Store, db: str) -> None:
        self.store, self._db = store, db
        self.reader, self._told = Reader(store, CHAT), dict[str, int]()
        self.kills = 0

    async def die_after(self, seconds: float) -> None:
        """Kill a process so long after its first text was durable."""
        await self._life(0, seconds)

    async def die_at_flush(self, point: int) -> None:
        """Let a process kill itself: before its first flush at point 1, after it at point 2, and so on."""
        await self._life(point, None)

    async def _life(self, die_at: int, after_s: float | None) -> None:
        command = [sys.executable, "-m", "tests.crash.streamer", self._db, CHAT, str(die_at), *RUNS]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        reading = asyncio.create_task(self._read_along())
        try:
            first = await process.stdout.readline()
            assert first or after_s is None, "it ended by itself"
            if after_s is not None:
                await asyncio.sleep(after_s)
                process.kill()
            lines = [first, *(await process.stdout.read()).splitlines(keepends=True)]
            assert await process.wait() == -signal.SIGKILL, "it ended by itself"
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        self.kills += 1
        await self.reader.read()
        self._check([line.decode().split() for line in lines if line.endswith(b"\n")])

    async def _read_along(self) -> None:
        while True:
            await self.reader.read()
            await asyncio.sleep(LOOK_S)

    def _check(self, told: list[list[str]]) -> None:
        """What this process was told, and all before it, is there."""
        for kind, message, length in told:
            self._told[message] = max(self._told.get(message, 0), int(length))
            assert kind != "complete" or self.reader.ended[message] == MessageState.COMPLETE
        for message, durable in self._told.items():
            assert len(self.reader.texts[message]) >= durable, f"durable text of {message} is gone"

    async def judge(self) -> str:
        """Compare everything; says how much it was."""
        texts, ended = self.reader.texts, self.reader.ended
        calls = {one.id: one for one in await self.store.messages.list(MessageQuery(chat=CHAT, limit=10_000))}
        assert calls.keys() == texts.keys()
        for message, text in texts.items():
            number = int(calls[message].call[1:])
            whole = "".join(token(number, at) for at in range(TOKENS))
            assert whole.startswith(text), f"{message} says what was never said"
            assert text == whole or ended.get(message) != MessageState.COMPLETE
        for run_id in RUNS:
            assert (await verify_run(self.store, run_id)).problems == ()
        assert await same_from_every_position(self.store, CHAT) == self.reader.cursor
        cut_off = [one for one, state in ended.items() if state == MessageState.INTERRUPTED]
        with_text = sum(bool(texts[one]) for one in cut_off)
        assert cut_off, "no kill hit a message: this proves nothing"
        return (
            f"{self.kills} kills, {len(calls)} messages, {len(cut_off)} cut off, {with_text} of them with "
            f"text, {self.reader.cursor} chunks"
        )


async def kill_at_flushes(db: str, points: range) -> str:
    """Kill a process at each of these points; says what that came to."""
    store = await open_store(db)
    try:
        streams = Streams(store, db)
        for point in points:
            await streams.die_at_flush(point)
        return await streams.judge()
    finally:
        await store.close()


async def kill_at_random(db: str, kills: int, dice: random.Random) -> str:
    """Kill so many processes at random moments; says what that came to."""
    store = await open_store(db)
    try:
        streams = Streams(store, db)
        for _ in range(kills):
            await streams.die_after(dice.uniform(0.0, 0.4))
        return await streams.judge()
    finally:
        await store.close()


async def both(kills: int) -> None:
    """The same on each database."""
    with PostgresServer(fsync=False) as server, tempfile.TemporaryDirectory() as place:
        databases = (("SQLite", str(Path(place) / "crash.db")), ("PostgreSQL", server.create_database()))
        for name, db in databases:
            came_to = await kill_at_flushes(db, range(1, kills + 1))
            print(f"{name}: {came_to}, at both sides of {kills // 2} flushes", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=120)
    asyncio.run(both(parser.parse_args().kills))
    return 0


if __name__ == "__main__":
    sys.exit(main())

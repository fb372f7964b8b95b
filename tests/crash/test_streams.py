"""kill -9 of a process that streams, on real databases: its text never goes back, nothing follows an end."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onward.model.row import MessageState
from onward.read.verify import verify_run
from onward.store.port.chats.messages import MessageQuery
from onward.wiring import open_store
from tests.conftest import Counted
from tests.crash.reading import Reader, same_from_every_position
from tests.crash.streamer import TOKENS, token

KILLS = 8
CHAT = "crash"
RUNS = ("run-a", "run-b", "run-c")


@pytest.mark.crash
@pytest.mark.timeout(240)
@pytest.mark.anyio
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_text_of_a_process_that_is_killed_at_random_moments_is_never_lost_or_repeated(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, count: Counted
) -> None:
    """What its process was told is durable is there, also while others go on with its runs."""
    seed = random.randrange(1_000_000)
    dice = random.Random(seed)
    is_postgres = database == "postgres"
    db = request.getfixturevalue("postgres_emptied_url") if is_postgres else str(tmp_path / "onward.db")
    store = await open_store(db)
    reader, told = Reader(store, CHAT), dict[str, int]()
    for _ in range(KILLS):
        for kind, message, length in await _killed(db, reader, dice):
            told[message] = max(told.get(message, 0), int(length))
            assert kind != "complete" or reader.ended[message] == MessageState.COMPLETE
        for message, durable in told.items():
            assert len(reader.texts[message]) >= durable, f"durable text is gone (seed {seed})"
    calls = {one.id: one for one in await store.messages.list(MessageQuery(chat=CHAT))}
    assert calls.keys() == reader.texts.keys()
    for message, text in reader.texts.items():
        number = int(calls[message].call[1:])
        whole = "".join(token(number, at) for at in range(TOKENS))
        assert whole.startswith(text), f"seed {seed}"
        assert (text == whole) or reader.ended.get(message) != MessageState.COMPLETE
    for run_id in RUNS:
        assert (await verify_run(store, run_id)).problems == ()
    assert await same_from_every_position(store, CHAT) == reader.cursor
    await store.close()
    cut_off = sum(state == MessageState.INTERRUPTED for state in reader.ended.values())
    count(f"{database}: {KILLS} kills, {len(calls)} messages, {cut_off} cut off, {reader.cursor} chunks")
    assert cut_off > 0, "no kill hit a message: the test proves nothing"


async def _killed(db: str, reader: Reader, dice: random.Random) -> list[list[str]]:
    """Let a process stream, read along, and kill it; returns what it was told."""
    command = [sys.executable, "-m", "tests.crash.streamer", db, CHAT, *RUNS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220 - alone
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, "it ended by itself"
        until = time.monotonic() + dice.uniform(0.0, 0.4)
        while time.monotonic() < until:
            await reader.read()
        process.kill()
        lines = [first, *process.stdout]
    await reader.read()
    return [line.split() for line in lines if line.endswith("\n")]

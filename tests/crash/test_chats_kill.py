"""kill -9 of real senders and workers: every acknowledged message is there once, and has one run."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from onward.model.chat import IntakeState, Role
from onward.model.chat import text_of as said_by
from onward.model.run import RunStatus
from onward.store.port.messages import MessageQuery
from onward.store.port.runs import RunQuery
from onward.wiring import open_store
from tests.conftest import Counted
from tests.crash.sender import CHATS, chat_of, text_of

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
MESSAGES, KILLS, PATIENCE_S = 8, 12, 180
PIPELINE = """digraph site {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  work [shape=parallelogram, tool_command="echo $ONWARD_RUN_ID >> ledger"]
  start -> work -> exit
}"""


class Campaign:
    """Two senders of the same messages and a worker, each killed and started again."""

    def __init__(self, directory: Path, db: str, seed: int) -> None:
        self.directory, self.db, self.dice = directory, db, random.Random(seed)
        self.acknowledged: set[str] = set()
        self.kills = 0
        (directory / "onward.toml").write_text('[chats]\non_owner_loss = "requeue"\n')
        (directory / "site.dot").write_text(PIPELINE)
        self._onward("pipelines", "add", "site.dot")

    def run(self) -> None:
        """Kill until enough was killed, and let everything end by itself then."""
        sending = [sys.executable, "-m", "tests.crash.sender", self.db, str(MESSAGES)]
        working = [sys.executable, "-m", "onward", "worker", "--db", self.db]
        commands = [sending, sending, working]
        alive = [self._start(command) for command in commands]
        while self.kills < KILLS:
            time.sleep(self.dice.uniform(0.1, 1.5))
            victim = self.dice.randrange(len(alive))
            alive[victim].send_signal(signal.SIGKILL)
            self._hear(alive[victim])
            self.kills += 1
            alive[victim] = self._start(commands[victim])
        for sender in alive[:2]:
            self._hear(sender)
            assert sender.returncode == 0
        alive[2].send_signal(signal.SIGKILL)
        self._hear(alive[2])
        # A message that one worker failed to take up, on a busy database, is left to the next.
        for _ in range(2):
            self._onward("worker", "--until-idle")

    def _hear(self, process: subprocess.Popen[str]) -> None:
        told, _ = process.communicate(timeout=PATIENCE_S)
        self.acknowledged.update(line.split()[1] for line in told.splitlines() if line[:1].isdecimal())

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, cwd=self.directory, env=self._environment, stdout=subprocess.PIPE, text=True
        )

    def _onward(self, *words: str) -> None:
        process = self._start([sys.executable, "-m", "onward", *words, "--db", self.db])
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(self.directory)}


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_messages_of_killed_senders_are_there_once_and_have_one_run_each(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, count: Counted
) -> None:
    """S0-43, B0-15: the same messages by two processes at once, through kills of both and of the worker."""
    seed = random.randrange(1_000_000)
    db = request.getfixturevalue("postgres_url") if database == "postgres" else str(tmp_path / "onward.db")
    campaign = Campaign(tmp_path, db, seed)
    campaign.run()
    store = await open_store(db)
    begun: set[str] = set()
    try:
        for number in range(CHATS):
            chat = chat_of(number)
            texts = [text_of(one) for one in range(MESSAGES) if chat_of(one) == chat]
            said = [
                one for one in await store.messages.list(MessageQuery(chat=chat)) if one.role is Role.USER
            ]
            spoken = [said_by(await store.messages.content(one.id) or ()) for one in said]
            assert sorted(spoken) == sorted(texts), f"seed {seed}"
            intakes = await store.intakes.list(chat, is_open=False, limit=100)
            assert {one.state for one in intakes} == {IntakeState.DONE}, f"seed {seed}"
            runs = await store.runs.list(RunQuery(chat=chat))
            assert {one.run_id for one in intakes} == {one.row.id for one in runs}, f"seed {seed}"
            assert len(runs) == len(texts), f"seed {seed}"
            assert {one.row.status for one in runs} == {RunStatus.COMPLETED}, f"seed {seed}"
            campaign.acknowledged -= {one.message for one in intakes}
            begun |= {one.run_id for one in intakes}
        assert campaign.acknowledged == set(), f"seed {seed}"
    finally:
        await store.close()
    done = Counter((tmp_path / "ledger").read_text().splitlines())
    assert done.keys() == begun
    again = sum(done.values()) - MESSAGES
    count(f"{database}: {campaign.kills} kills, {MESSAGES} messages, {again} steps again (seed {seed})")

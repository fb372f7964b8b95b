"""The conformance suite as somebody else would use it: on a store of their own, and on one that lies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conformance import suite

pytestmark = pytest.mark.slow

THREE_LINES = """
import pytest
from onward.store.memory.adapter import MemoryDatabase, MemoryStore
from onward.store.memory.state import MemoryLeases
from onward.store.memory.log import MemoryLog
from tests.conformance.suite import *

Mine, Log, Leases = MemoryStore, MemoryLog, MemoryLeases
{lie}

@pytest.fixture
def connect():
    database = MemoryDatabase()
    async def connect():
        store = Mine(database, database.connect().leases.owner)
        store.log = Log(database, store._ownership, store.limits)
        store.leases = Leases(store._ownership)
        return store
    return connect
"""
HONEST = ""
# Each is a part that breaks one promise, and a word of the sentence that must say so.
LIARS = {
    "wrong_owner_or_token": """
class Log(MemoryLog):
    async def append(self, write, lease):
        row = self._state.runs[write.run_id].row
        await super().append(write, lease._replace(owner=row.owner, token=row.token))
""",
    "same_request_again": """
class Log(MemoryLog):
    async def control(self, run_id, *, since, append_id, decide):
        unheard_of = f"{append_id} {id(decide)} {since}"
        return await super().control(run_id, since=since, append_id=unheard_of, decide=decide)
""",
    "limits_hold": """
class Log(MemoryLog):
    async def read(self, run_id, *, after, limit):
        return await super().read(run_id, after=after, limit=limit + 1)
""",
    "renewal_says_nothing": """
class Leases(MemoryLeases):
    async def renew(self, leases):
        return {lease.run_id: 1 for lease in leases}
""",
    "gone_can_be_told": """
class Mine(MemoryStore):
    async def close(self):
        pass
""",
}


def run(directory: Path, stores: Mapping[str, str], *, only: str = "") -> tuple[int, str]:
    """The outcome of hearing the sentences on such stores, in a project that has no settings at all."""
    for name, lie in stores.items():
        (directory / f"test_{name}.py").write_text(THREE_LINES.format(lie=lie))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", only],
        cwd=directory,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def told_of_liars(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is printed about all stores that lie, each in a file of its own and asked for its own promise."""
    stores = {f"liar{number}": lie for number, lie in enumerate(LIARS.values())}
    only = " or ".join(f"({name} and {sentence})" for name, sentence in zip(stores, LIARS, strict=True))
    code, output = run(tmp_path_factory.mktemp("liars"), stores, only=only)
    assert code == 1, output
    return output


def test_an_honest_store_passes_every_sentence(tmp_path: Path) -> None:
    code, output = run(tmp_path, {"mine": HONEST})
    assert code == 0, output
    assert "failed" not in output
    assert "warning" not in output
    sentences = [name for name in suite.__all__ if name.startswith("test_")]
    assert len(sentences) > 80


def test_a_store_that_breaks_a_promise_is_told_which(told_of_liars: str) -> None:
    failed = [line for line in told_of_liars.splitlines() if line.startswith("FAILED")]
    unheard = [sentence for sentence in LIARS if not any(sentence in line for line in failed)]
    assert unheard == [], told_of_liars
    assert "'nowhere': 1" in told_of_liars, "a failure shows the values it is about"

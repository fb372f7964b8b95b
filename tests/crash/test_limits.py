"""Many workers spend in one scope, and some are killed: the limit is used up, and not one token more."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest

from onward.operations.here.verify import verify_run
from onward.store.port.limits import ReservationState
from onward.store.port.runs import RunQuery
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.cli.nursery import INHERITED, Process
from tests.cli.nursery import start as start_python
from tests.crash.spender import RESERVED_MAX, take_over

pytestmark = [pytest.mark.anyio, pytest.mark.crash, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SCOPES = ("chat/c", "day/2023-11-14", "project/p", "run/root")
LIMIT = 1_500
PROCESSES = 4
KILLS = 3


@pytest.fixture
def place(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, int]:
    """A database, and how many workers each process has."""
    if database == "sqlite":
        return str(tmp_path / "onward.db"), 1
    url: str = request.getfixturevalue("postgres_emptied_url")
    return url, 4


def start(db: str, name: str, workers: int) -> Process:
    return start_python(["-m", "tests.crash.spender", db, name, str(workers), *SCOPES], ROOT, INHERITED)


def killed_and_replaced(db: str, workers: int) -> None:
    """Let processes spend, kill some in the middle of it, and wait until the limit stops the rest."""
    names = map(str, itertools.count())
    living = [start(db, f"p{next(names)}", workers) for _ in range(PROCESSES)]
    for number in range(KILLS):
        victim = living[number % PROCESSES]
        assert victim.stdout is not None
        for _ in range(3 * workers):
            if not victim.stdout.readline():
                break
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        living[number % PROCESSES] = start(db, f"p{next(names)}", workers)
    for process in living:
        said, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
        assert said.count(b"stopped") == workers


async def settle_the_dead(store: Store) -> None:
    for run_id in await store.limits.abandoned(SCOPES[1]):
        await take_over(store, run_id)


# Scopes differ only in their names, which the suite of all stores has: here each is on one database.
@pytest.mark.parametrize(
    ("database", "limited"),
    [
        ("sqlite", SCOPES[0]),
        pytest.param("postgres", SCOPES[1], marks=pytest.mark.postgres),
        pytest.param("postgres", SCOPES[2], marks=pytest.mark.postgres),
        ("sqlite", SCOPES[3]),
    ],
)
async def test_a_scope_that_many_workers_spend_in_is_used_up_and_never_oversold(
    place: tuple[str, int], limited: str
) -> None:
    """16 workers of 4 processes on PostgreSQL, 4 processes on SQLite."""
    db, workers = place
    store = await open_store(db)
    await store.limits.change(limited, {"tokens": LIMIT})
    killed_and_replaced(db, workers)
    await settle_the_dead(store)
    spent = 0
    for listed in await store.runs.list(RunQuery(limit=200)):
        verified = await verify_run(store, listed.row.id)
        assert verified.problems == ()
        made = await store.limits.reservations(listed.row.id)
        assert all(one.state is ReservationState.SETTLED for one in made)
        spent += sum(one.charged.tokens for one in made)
    for scope in await store.limits.read(SCOPES):
        assert (scope.spent.tokens, scope.reserved.tokens) == (spent, 0)
    assert LIMIT - RESERVED_MAX < spent <= LIMIT
    await store.close()

"""kill -9 of a process that streams, on real databases: its text never goes back, nothing follows an end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import Counted
from tests.crash.cut_off import share_found
from tests.crash.streams import kill_at_flushes, kill_at_random

KILLS = 8
FLUSHES = 3
SHARE_MIN = 0.7
"""About 0.93 on a machine that has time, 0.75 at five times its load; 0.65 with four flushes a second."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    is_postgres = request.param == "postgres"
    return request.getfixturevalue("postgres_emptied_url") if is_postgres else str(tmp_path / "onward.db")


@pytest.mark.crash
@pytest.mark.timeout(240)
@pytest.mark.anyio
async def test_text_of_a_process_that_is_killed_at_random_moments_is_never_lost_or_repeated(
    database: str, count: Counted
) -> None:
    """What its process was told is durable is there, also while others go on with its runs."""
    seed = random.randrange(1_000_000)
    count(f"{await kill_at_random(database, KILLS, random.Random(seed))} (seed {seed})")


@pytest.mark.crash
@pytest.mark.timeout(240)
@pytest.mark.anyio
async def test_text_of_a_process_that_is_killed_before_or_after_a_flush_is_never_lost_or_repeated(
    database: str, count: Counted
) -> None:
    """Before, it was never said; after, it was, although the process was not told. `make crash` goes on."""
    came_to = await kill_at_flushes(database, range(1, 2 * FLUSHES + 1))
    count(f"{came_to}, at both sides of {FLUSHES} flushes")


@pytest.mark.crash
@pytest.mark.timeout(240)
@pytest.mark.anyio
async def test_a_reader_of_an_answer_that_was_cut_off_finds_nearly_all_of_it(
    database: str, count: Counted
) -> None:
    """`python -m tests.crash.cut_off` kills more often, which says it more exactly."""
    seed = random.randrange(1_000_000)
    share = await share_found(database, 2 * KILLS, random.Random(seed))
    count(f"{2 * KILLS} kills, a reader finds {share:.0%} of the text (seed {seed})")
    assert share >= SHARE_MIN

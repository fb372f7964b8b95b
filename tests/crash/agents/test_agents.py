"""kill -9 of processes whose agents stream, with an endpoint that misbehaves (I30, I32 to I34)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import Counted
from tests.crash.agents.campaign import campaign

KILLS = 14
STRIDE = 37
USES = ("before a use of pay", "in a use of pay", "after a use of pay")


@pytest.mark.crash
@pytest.mark.anyio
@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_agents_that_are_killed_anywhere_ask_nothing_twice_that_was_answered(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, count: Counted
) -> None:
    """S2-2, S2-16: judged by the ledger of the endpoint that they ask."""
    seed = random.randrange(1_000_000)
    db = request.getfixturevalue("postgres_emptied_url") if database == "postgres" else ""
    tally = await campaign(db, tmp_path, kills=KILLS, seed=seed, stride=STRIDE, first=USES)
    count(f"{database}: {tally} (seed {seed})")
    assert tally.problems == [], f"seed {seed}"
    assert tally.kills == KILLS
    assert all(tally.points[name] for name in USES), "no kill hit a use of a tool"
    assert tally.points["a moment of a stream"] > 0, "no kill hit a stream: the test proves nothing"

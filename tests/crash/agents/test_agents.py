"""kill -9 of processes whose agents stream, with an endpoint that misbehaves (I30, I32 to I34)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import Counted
from tests.crash.agents.campaign import campaign
from tests.crash.agents.tools import NAMED

KILLS = 14
STRIDE = 37


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
    tally = await campaign(db, tmp_path, kills=KILLS, seed=seed, stride=STRIDE)
    count(f"{database}: {tally} (seed {seed})")
    assert tally.problems == [], f"seed {seed}"
    assert tally.kills == KILLS
    assert tally.points["a moment of a stream"] > 0, "no kill hit a stream: the test proves nothing"


@pytest.mark.crash
@pytest.mark.anyio
@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_a_kill_at_any_point_of_a_use_of_a_tool_does_nothing_twice(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, count: Counted
) -> None:
    """S2-2: a tool of a workspace, of an MCP server, and one that must not be repeated; also when a person
    has just allowed the use. Judged by what the tools and the server wrote down. Each database has every
    second point, and with --all-stores, as in `make crash`, all of them.
    """
    seed = random.randrange(1_000_000)
    db = request.getfixturevalue("postgres_emptied_url") if database == "postgres" else ""
    points = NAMED if request.config.getoption("--all-stores") else NAMED[database == "postgres" :: 2]
    tally = await campaign(db, tmp_path, kills=len(points), seed=seed, first=points)
    count(f"{database}: {tally} (seed {seed})")
    assert tally.problems == [], f"seed {seed}"
    assert tally.points == dict.fromkeys(points, 1)

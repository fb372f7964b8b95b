"""kill -9 of the real process, on real databases (K1, K2, O21)."""

from __future__ import annotations

import random

import pytest

from tests.conftest import Counted
from tests.crash.kill import campaign

KILLS = 15  # `make crash` makes 500


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_run_killed_at_random_moments_ends_like_one_that_nobody_disturbed(
    database: str, request: pytest.FixtureRequest, count: Counted
) -> None:
    """O21, K1, K2: the same result and path, no finished step performed again, no gap, verify clean. P17."""
    seed = random.randrange(1_000_000)
    db = request.getfixturevalue("postgres_url") if database == "postgres" else ""
    tally = campaign(db, kills=KILLS, seed=seed)
    count(f"{database}: {tally} (seed {seed})")
    assert tally.problems == [], f"seed {seed}"
    assert tally.kills == KILLS
    assert tally.inside_a_step > 0, "no kill hit a step: the test proves nothing"

"""A small storm over several workers; `make chaos` makes a large one."""

from __future__ import annotations

import random

import pytest

from tests.conftest import Counted
from tests.crash.chaos import FAULTS, chaos


@pytest.mark.crash
@pytest.mark.postgres
@pytest.mark.timeout(300)
def test_workers_that_are_killed_frozen_and_cut_off_finish_every_run_once(
    count: Counted,
) -> None:
    """Document 002: every run ends, one outcome for each step, no effect after its step had finished."""
    seed = random.randrange(1_000_000)
    counts = chaos(workers=3, runs=30, seed=seed, patience_s=240, faults=",".join(FAULTS), fault_max=30)
    count(f"chaos: {counts}")
    assert not counts.problems, "\n".join((*counts.problems, f"seed {seed}"))
    assert counts.zombies == 0
    assert sum(counts.done.values()) > 0, "nothing went wrong: the test proves nothing"

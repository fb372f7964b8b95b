"""What `make demo` and `make demo-steps` show is true: they exit with 0 only if it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import PATIENCE_S

DEMO = Path(__file__).parent.parent.parent / "demo"
pytestmark = [pytest.mark.slow, pytest.mark.crash]


def play(name: str) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ONWARD_", "OPENAI_"))}
    command = [sys.executable, str(DEMO / name)]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_finishes_one_run_through_a_limit_and_a_kill_and_pays_nothing_twice() -> None:
    said = play("demo.py")
    assert said.count("is resumed (build, full: research, design, frontend") == 2
    assert "interrupted (limit)" in said
    assert "interrupted (crash)" in said
    assert "has the answer and continues" in said
    assert "completed: 22 steps" in said
    assert said.endswith("requests: 21, answered to the end: 20, cut off: 1\n   answers paid for twice: 0\n")


def test_the_demo_of_steps_repeats_only_the_step_that_was_cut_off() -> None:
    said = play("steps.py")
    assert said.count("<- cut off by the kill, so it ran again") == 1
    assert said.endswith("finished steps that ran again: 0\n")

"""What `make demo` and `make demo-steps` show is true: they exit with 0 only if it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import PATIENCE_S, Shell, Terminal

DEMO = Path(__file__).parent.parent.parent / "demo"
pytestmark = [pytest.mark.slow, pytest.mark.crash]


def play(name: str, *arguments: str) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ONWARD_", "OPENAI_"))}
    command = [sys.executable, str(DEMO / name), *arguments]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_finishes_one_run_through_a_limit_and_a_kill_and_pays_nothing_twice(tmp_path: Path) -> None:
    said = play("demo.py", str(tmp_path))
    assert said.count("is resumed (build, full: research, design, frontend") == 2
    assert "interrupted (limit)" in said
    assert "interrupted (crash)" in said
    assert "has the answer and continues" in said
    assert "completed: 22 steps" in said
    assert "requests: 21, answered to the end: 20, cut off: 1\n   paid twice: 0\n" in said
    assert "would have paid 4 answers twice" in said
    assert "logo.svg" not in (tmp_path / "bakery/site/index.html").read_text()
    assert said.endswith(f"The site is {tmp_path}/bakery/site/index.html.\n")


def test_on_a_terminal_the_demo_ends_with_the_page(tmp_path: Path) -> None:
    environment = {**Shell(tmp_path, "").environment, "ONWARD_NO_WEB": "1"}
    command = [sys.executable, str(DEMO / "demo.py"), str(tmp_path / "kept")]
    terminal = Terminal(command, tmp_path, environment, has_pipe=False)
    terminal.wait_for("sign in: http://127.0.0.1:[0-9]+/sign-in#")
    terminal.type("\x03")
    done = terminal.end()
    assert done.code == 0, done.out
    assert "server stopped" in done.out


def test_the_demo_of_steps_repeats_only_the_step_that_was_cut_off() -> None:
    said = play("steps.py")
    assert said.count("<- cut off by the kill, so it ran again") == 1
    assert said.endswith("finished steps that ran again: 0\n")

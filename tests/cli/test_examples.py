"""The examples run without a provider: killed in the middle, resumed, allowed, and counted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from onward.testing.model_endpoint import read_ledger
from tests.cli.shell import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.crash]


def play(name: str, project: Path) -> str:
    """What the example prints; its project is left in `project`."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("ONWARD_", "OPENAI_"))
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/run.py"), name, "--keep", str(project)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def requests(project: Path) -> dict[str, int]:
    """How often each request reached the model."""
    return Counter(entry.idempotency_key for entry in read_ledger(str(project / "requests.jsonl")))


def test_the_review_posts_once_after_a_kill_and_an_approval(tmp_path: Path) -> None:
    project = tmp_path / "review"
    said = play("review", project)
    assert "run review completed" in said
    assert "answered before the kill: 8, of these asked or done again: 0" in said
    assert requests(project) == {
        **{f"review/review#1/m{number}": 1 for number in (1, 2, 3)},
        "review/review#1/m4": 2,
        **{f"review/post#1/m{number}": 1 for number in (1, 2)},
    }
    uses = (project / "uses.txt").read_text().splitlines()
    assert sorted(uses) == ["convention errors", "convention money", "post_review review/post#1/m1.t1"]
    assert (project / "posted.md").read_text().count("## ") == 1


def test_the_research_asks_again_only_what_the_kill_cut_off(tmp_path: Path) -> None:
    project = tmp_path / "research"
    said = play("research", project)
    assert "run research completed" in said
    assert "answered before the kill: 17, of these asked or done again: 0" in said
    asked = requests(project)
    assert [key for key, times in asked.items() if times > 1] == ["research/fan#1.water/water#1/m3"]
    assert len(asked) == 11
    assert sorted((project / "uses.txt").read_text().splitlines()) == [
        "hours batteries",
        "hours hydrogen",
        "hours water",
    ]
    assert (project / "map.md").read_text().count("- **") == 3

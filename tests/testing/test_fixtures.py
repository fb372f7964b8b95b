"""The fixtures for pytest, used as a project of a user's would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shape.tree import ROOT

pytestmark = pytest.mark.slow


def sample() -> str:
    """The test that docs/testing.md shows."""
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"```python\n(# test_site\.py\n.*?)```", page, re.DOTALL)
    return str(found)


def test_the_tests_that_the_page_shows_pass(tmp_path: Path) -> None:
    """A script, a simulation, and a kill in the middle."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["onward.testing.fixtures"]\n')
    (tmp_path / "test_site.py").write_text(sample())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_step_that_never_starts_is_an_error(tmp_path: Path) -> None:
    from onward.testing.fixtures import OnwardProject

    project = OnwardProject(tmp_path)
    project.write("a.dot", "digraph a { start [shape=Mdiamond]; exit [shape=Msquare]; start -> exit }")
    with pytest.raises(AssertionError, match="step b never started"):
        project.kill_in("b", "run", "a.dot")

"""The pure parts of the page: words, and frames that are put into what is known."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.web.site import ROOT

WEB = ROOT / "web"


@pytest.mark.slow
def test_what_is_pure_in_the_page_is_right() -> None:
    npm = shutil.which("npm")
    if npm is None or not (WEB / "node_modules/vitest").is_dir():
        pytest.skip("the packages of the page are not installed: `make web` installs them")
    done = subprocess.run([npm, "test"], cwd=WEB, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr

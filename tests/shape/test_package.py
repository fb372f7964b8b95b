"""What is shipped: the wheel holds every file the package reads, and the locks cover what it needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.shape.tree import PACKAGE, ROOT

LEFT_OUT = {".pyc"}


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["project"]
    return table


def normal_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def locked(file: str) -> dict[str, str]:
    """Package name → its whole entry, with the continued lines."""
    text = (ROOT / file).read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)
    return {normal_name(entry): entry for entry in entries if re.match("[a-z0-9]", entry)}


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    written = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in LEFT_OUT
    }
    assert "onward/py.typed" in shipped
    assert not written - shipped


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_every_locked_package_is_pinned_and_hashed(file: str) -> None:
    entries = locked(file)
    assert entries
    loose = [name for name, entry in entries.items() if "==" not in entry or "--hash=sha256:" not in entry]
    assert not loose


def test_the_locks_cover_every_dependency() -> None:
    needed = {normal_name(requirement) for requirement in project()["dependencies"]}
    extra = {normal_name(requirement) for requirement in project()["optional-dependencies"]["dev"]}
    assert not needed - locked("requirements.txt").keys(), "run `make lock`"
    assert not (needed | extra) - locked("requirements-dev.txt").keys(), "run `make lock`"


def test_both_locks_agree() -> None:
    development = locked("requirements-dev.txt")
    for name, entry in locked("requirements.txt").items():
        assert entry.split()[0] == development[name].split()[0]

"""What `deploy/` starts exists: files, commands and flags."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from onward.cli.main import run
from tests.shape.tree import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
UNITS = sorted(DEPLOY.glob("*.service"))


def commands() -> list[list[str]]:
    """The command lines of Onward in compose.yaml and the units."""
    listed = re.findall(r"^    command: \[(.*)\]$", COMPOSE, re.MULTILINE)
    found = [re.findall(r'"([^"]*)"', line) for line in listed]
    for unit in UNITS:
        (line,) = re.findall(r"^ExecStart=\S+/onward (.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
        found.append(shlex.split(line))
    return found


def test_the_image_is_made_of_files_that_exist() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert {"src", "web", "requirements.txt"} <= {*names}
    assert [name for name in names if not (ROOT / name).exists()] == []
    seen = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert [name for name in names if f"!{name.partition('/')[0]}" not in seen] == []


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_and_flag_exists(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([words[0], "--help"]) == 0
    told = capsys.readouterr().out
    assert [word for word in words if word.startswith("--") and word not in told] == []


def test_the_processes_of_compose_are_given_time_to_stop() -> None:
    grace = int(re.findall(r'ONWARD_GRACE: "(\d+)"', COMPOSE)[0])
    assert int(re.findall(r"stop_grace_period: (\d+)s", COMPOSE)[0]) > grace
    for unit in UNITS:
        assert int(re.findall(r"TimeoutStopSec=(\d+)", unit.read_text(encoding="utf-8"))[0]) > 30


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze")
    there = tmp_path / unit.name.replace("@.", "@1.")
    there.write_text(unit.read_text(encoding="utf-8").replace("/opt/onward/bin/onward", "/bin/true"))
    done = subprocess.run([program, "verify", str(there)], capture_output=True, text=True)
    assert (done.returncode, unit.name in done.stderr) == (0, False), done.stderr

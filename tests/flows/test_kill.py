"""Processes that execute a flow are killed with kill -9; a ledger outside says what they did."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "examples/flow/site.py"
ONWARD = [sys.executable, "-m", "onward"]


def onward(
    work: Path, db: str, *words: str, kill_after_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command; kill it when its time is over."""
    process = subprocess.Popen(
        [*ONWARD, *words, "--db", db], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "ONWARD_ANSWERS": "wait"},
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=kill_after_s or 120)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def shown(work: Path, db: str, run: str) -> dict[str, Any]:
    """The run as `onward show` tells it; empty if it was killed before it existed."""
    told: dict[str, Any] = json.loads(onward(work, db, "show", run, "--json").stdout or "{}")
    return told if "status" in told else {}


def answered(work: Path, db: str, run: str) -> Counter[str]:
    """The calls that have an answer, as `onward calls` lists them."""
    listed = json.loads(onward(work, db, "calls", run, "--json").stdout)
    return Counter(one["call"] for one in listed if one["state"] == "ok")


def done(work: Path) -> Counter[str]:
    ledger = work / "ledger.txt"
    return Counter(ledger.read_text().splitlines()) if ledger.exists() else Counter()


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_flow_killed_again_and_again_repeats_nothing_that_finished(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    db = str(tmp_path / "runs.db") if kind == "sqlite" else request.getfixturevalue("postgres_emptied_url")
    shutil.copy(SITE, tmp_path / "site.py")
    dice = random.Random(7)
    words = ["run", "site.py:build", "--set", "topic=durable", "--run-id", "order-17"]
    deadline = time.monotonic() + 100
    kept: Counter[str] = Counter()
    run: dict[str, Any] = {}
    for life in range(30):
        assert time.monotonic() < deadline, "it does not come to its end"
        before = done(tmp_path)
        onward(tmp_path, db, *words, kill_after_s=0.6 + dice.random() if life < 8 else None)
        run = shown(tmp_path, db, "order-17")
        if not run:
            continue
        now = done(tmp_path)
        for key, what in (("research", "research"), ("gather.0/page", "page front"), ("pay", "pay")):
            if kept[key]:
                assert now[what] == before[what], f"{key} ran again"
        kept = answered(tmp_path, db, "order-17")
        if run["status"] == "completed":
            break
        words = ["resume", "order-17", "--take-over"]
        if run["status"] == "waiting" and run["gates"]:
            words = ["answer", "order-17", "yes"]
        elif run["step_in_doubt"]:  # a person looks whether it was paid
            decided = ["--continue", "--answer", "pay=by hand"] if now["pay"] else ["--retry"]
            words = ["resume", "order-17", *decided]
    assert run.get("status") == "completed", run
    assert done(tmp_path)["pay"] == 1
    value = run["context"]["flow.result"]
    assert value[:2] == ["front", "back"]
    told = onward(tmp_path, db, "show", "order-17").stdout
    assert "STEP OF THE FLOW" in told
    assert "gather.1/page" in told

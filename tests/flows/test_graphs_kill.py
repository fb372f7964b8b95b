"""Workers that execute flows and their graphs are killed with kill -9; a ledger says what they did."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.flows.test_kill import ONWARD, done, onward, shown

FLOW = """from onward import flow, gather, graph, step


@step
async def pack(name: str) -> str:
    with open("ledger.txt", "a") as ledger:
        print("pack", name, file=ledger, flush=True)
    return name


@flow
async def order(number: int) -> list[str]:
    first = await pack("first")
    one, two = await gather(graph("ship.dot", {"parcel": "one"}), graph("ask.dot", {"parcel": "two"}))
    return [first, one["parcel"], two["parcel"], two["human.gate.label"], await pack("last")]
"""
SHIP = """digraph ship {
  start [shape=Mdiamond]; exit [shape=Msquare]
  label [shape=parallelogram, tool_command="sleep 0.2; echo label >> ledger.txt"]
  send [shape=parallelogram, tool_command="sleep 0.2; echo send >> ledger.txt"]
  start -> label -> send -> exit
}"""
ASK = """digraph ask {
  start [shape=Mdiamond]; exit [shape=Msquare]
  weigh [shape=parallelogram, tool_command="sleep 0.2; echo weigh >> ledger.txt"]
  sure [shape=hexagon, label="Sure?"]
  bill [shape=parallelogram, tool_command="sleep 0.2; echo bill >> ledger.txt"]
  start -> weigh -> sure
  sure -> bill [label="yes"]; sure -> exit [label="no"]; bill -> exit
}"""


def worker(work: Path, db: str) -> subprocess.Popen[bytes]:
    words = [*ONWARD, "worker", "--app", "shop.py", "--db", db, "--concurrency", "1"]
    with open(work / "workers.txt", "ab") as out:
        return subprocess.Popen(words, cwd=work, stdout=out, stderr=out, env={**os.environ})


def finished(work: Path, db: str, run: str) -> list[str]:
    """The steps of a run that its log says have finished."""
    told: dict[str, Any] = json.loads(onward(work, db, "show", run, "--json").stdout or "{}")
    return list(told.get("completed", []))


def family(work: Path, db: str, run: str) -> list[dict[str, Any]]:
    told: dict[str, Any] = json.loads(onward(work, db, "show", run, "--json").stdout or "{}")
    return list(told.get("children", []))


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_workers_killed_while_they_execute_flows_and_graphs_repeat_nothing_that_finished(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    db = str(tmp_path / "runs.db") if kind == "sqlite" else request.getfixturevalue("postgres_emptied_url")
    (tmp_path / "shop.py").write_text(FLOW)
    (tmp_path / "ship.dot").write_text(SHIP)
    (tmp_path / "ask.dot").write_text(ASK)
    dice = random.Random(kind)
    words = ["submit", "shop.py:order", "--set", "number=17", "--run-id", "order-17"]
    told = onward(tmp_path, db, *words, "--on-owner-loss", "requeue")
    assert told.returncode == 0, told.stderr
    deadline = time.monotonic() + 150
    workers = [worker(tmp_path, db), worker(tmp_path, db)]
    kept: Counter[str] = Counter()
    kills = 0
    try:
        while True:
            assert time.monotonic() < deadline, (shown(tmp_path, db, "order-17"), kills)
            if kills < 6:
                time.sleep(0.4 + dice.random())
                at = dice.randrange(2)
                workers[at].send_signal(signal.SIGKILL)
                workers[at].wait()
                workers[at] = worker(tmp_path, db)
                kills += 1
            before = done(tmp_path)
            again = {what for what in kept if before[what] > kept[what]}
            assert not again, f"done again: {again}"
            for child in family(tmp_path, db, "order-17"):
                for step in finished(tmp_path, db, child["id"]):
                    what = step.partition("#")[0]
                    if what in ("label", "send", "weigh", "bill") and what not in kept:
                        kept[what] = done(tmp_path)[what]
                if child["status"] == "waiting":
                    onward(tmp_path, db, "answer", child["id"], "yes", "--no-run")
                elif child["status"] == "interrupted":
                    onward(tmp_path, db, "resume", child["id"], "--queue")
            run = shown(tmp_path, db, "order-17")
            if run["status"] in ("completed", "failed"):
                break
            if run["status"] == "interrupted":
                onward(tmp_path, db, "resume", "order-17", "--queue")
    finally:
        for one in workers:
            one.kill()
            one.wait()
    assert run["status"] == "completed", run["detail"]
    assert run["context"]["flow.result"] == ["first", "one", "two", "yes", "last"]
    children = family(tmp_path, db, "order-17")
    assert [child["status"] for child in children] == ["completed"] * 2
    assert kept.keys() >= {"label", "weigh"}
    assert done(tmp_path).keys() == {"pack first", "pack last", "label", "send", "weigh", "bill"}

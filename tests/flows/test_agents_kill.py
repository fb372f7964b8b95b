"""Processes with agents in a flow are killed with kill -9; an endpoint and a ledger say what they did."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onward.testing.model_endpoint import read_ledger
from tests.flows.test_kill import ROOT, answered, done, onward, shown

SCRIPT = {
    "rules": [
        {"contains": "mood", "reply": {"text": "angry", "delay_s": 0.2}},
        {
            "contains": "Decide",
            "reply": {
                "tool_calls": [{"id": "c1", "name": "find_order", "arguments": '{"number": "17"}'}],
                "first_delay_s": 0.2,
            },
        },
        {
            "contains": "a lamp",
            "reply": {"text": '{"refund_cents": 1900, "letter": "Dear Ann"}', "delay_s": 0.02},
        },
    ]
}


@contextmanager
def endpoint(work: Path) -> Iterator[str]:
    """A model at an address of its own, which writes down every request."""
    script = work / "script.json"
    script.write_text(json.dumps(SCRIPT))
    words = [sys.executable, "-m", "onward.testing.model_endpoint", str(script)]
    words += ["--ledger", str(work / "requests.jsonl")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def requests(work: Path) -> Counter[str]:
    """How often each request was sent, by the key of its call."""
    ledger = work / "requests.jsonl"
    entries = read_ledger(str(ledger)) if ledger.exists() else []
    return Counter((entry.idempotency_key or "").partition("flow#1/")[2] for entry in entries)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_agents_in_a_flow_killed_again_and_again_ask_and_pay_nothing_twice(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = str(tmp_path / "runs.db") if kind == "sqlite" else request.getfixturevalue("postgres_emptied_url")
    shutil.copy(ROOT / "examples/flow/support.py", tmp_path / "support.py")
    dice = random.Random(kind)
    words = ["run", "support.py:answer", "--set", "mail=My lamp of order 17 broke!", "--run-id", "mail-17"]
    deadline = time.monotonic() + 100
    kept: Counter[str] = Counter()
    run: dict[str, Any] = {}
    with endpoint(tmp_path) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-a-test")
        monkeypatch.setenv("ONWARD_MODEL", "openai:small")
        for life in range(30):
            assert time.monotonic() < deadline, "it does not come to its end"
            sent, did = requests(tmp_path), done(tmp_path)
            onward(tmp_path, db, *words, kill_after_s=0.8 + dice.random() if life < 8 else None)
            run = shown(tmp_path, db, "mail-17")
            if not run:
                continue
            again = {key: requests(tmp_path)[key] - sent[key] for key in kept}
            assert not any(again.values()), f"asked again: {again}"
            if kept["gather.0/agent/m1.t1"]:
                assert done(tmp_path)["find_order 17"] == did["find_order 17"]
            kept = answered(tmp_path, db, "mail-17")
            if run["status"] == "completed":
                break
            words = ["resume", "mail-17", "--take-over"]
            if run["step_in_doubt"]:  # a person looks whether the money was sent
                is_sent = done(tmp_path)["refund 1900"]
                decided = ["--continue", "--answer", "refund=by hand"] if is_sent else ["--retry"]
                words = ["resume", "mail-17", *decided]
    assert run.get("status") == "completed", run
    assert run["context"]["flow.result"].startswith("Dear Ann (angry; ")
    assert done(tmp_path)["refund 1900"] == 1
    told = onward(tmp_path, db, "show", "mail-17").stdout
    assert "gather.0/agent/m1.t1" in told
    assert "gather.1/mood" in told

"""The quickstarts of other systems on the page about coming from them: each is killed, and continues."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.flows.test_kill import answered, onward, shown

PAGE = (Path(__file__).parents[2] / "docs/coming-from.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
STARTS = {
    "dbos_quickstart.py": ("workflow", [], {"step_one": "Step one completed!"}),
    "temporal_quickstart.py": ("transfer", ["--set", "target=closed"], {"withdraw": "Withdrew 250"}),
    "prefect_quickstart.py": (
        "main",
        [],
        {"get_customer_ids": "Read the customers", "each.0/process_customer": "Processed customer0"},
    ),
}


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("file", STARTS)
def test_a_quickstart_that_is_killed_repeats_no_finished_step(tmp_path: Path, file: str) -> None:
    db, dice = str(tmp_path / "runs.db"), random.Random(file)
    (tmp_path / file).write_text(PROGRAMS[file], encoding="utf-8")
    flow, more, prints = STARTS[file]
    words = ["run", f"{file}:{flow}", *more, "--run-id", "it"]
    run: dict[str, Any] = {}
    kept: Counter[str] = Counter()
    for life in range(20):
        ran = onward(tmp_path, db, *words, kill_after_s=0.5 + dice.random() if life < 4 else None)
        for key, line in prints.items():
            assert not (kept[key] and line in ran.stdout), f"{key} ran again"
        run = shown(tmp_path, db, "it")
        if not run:
            continue
        kept = answered(tmp_path, db, "it")
        if run["status"] == "completed":
            break
        words = ["resume", "it"]
        if run["step_in_doubt"]:
            words += ["--retry"]
    assert run.get("status") == "completed", run
    assert run["context"]["flow.result"]

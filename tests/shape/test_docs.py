"""The pages agree with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from onward.model.event import CATALOGUE
from onward.model.run import RunStatus

ROOT = Path(__file__).parent.parent.parent
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")


def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/make_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + "run `make docs`"


def test_every_status_event_and_table_is_in_the_glossary() -> None:
    schema = (ROOT / "src/onward/store/sqlite/migrations/001_runs.sql").read_text(encoding="utf-8")
    tables = re.findall(r"CREATE TABLE (\w+)", schema)
    words = [*(status.value for status in RunStatus), *(kind.__name__ for kind in CATALOGUE), *tables]
    assert [word for word in words if not re.search(rf"\b{word}\b", GLOSSARY)] == []


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []

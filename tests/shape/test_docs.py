"""The pages agree with the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import onward
from onward import config, errors
from onward.machine.catalogue import CATALOGUE
from onward.model.run import RunStatus
from onward.model.values import ALWAYS_PASSED
from scripts.api_page import MissingDocstring, class_lines
from tests.shape.tree import modules, show

ROOT = Path(__file__).parent.parent.parent
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.make_docs", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + "run `make docs`"


def test_every_public_name_and_error_is_on_the_page_about_python() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert [name for name in onward.__all__ if name not in headings] == []
    rows = re.findall(r"^\| `(\w+)` \| [\w, ]+ \|", page[page.index("## Errors") :], re.MULTILINE)
    assert sorted(rows) == errors.__all__
    for method in ("submit", "submit_many", "list", "events", "wait", "worker", "schedule_at", "handler"):
        assert f"### `Onward.{method}`" in page


def test_a_public_name_without_a_docstring_is_told() -> None:
    class Silent:
        """Says something; its method does not."""

        def method(self) -> None: ...

    Silent.__module__ = "onward.silent"
    with pytest.raises(MissingDocstring, match=r"Silent\.method has no docstring"):
        list(class_lines(Silent))


def test_every_status_event_and_table_is_in_the_glossary() -> None:
    changes = sorted((ROOT / "src/onward/store/sqlite/migrations").glob("*.sql"))
    schema = "".join(change.read_text(encoding="utf-8") for change in changes)
    tables = re.findall(r"CREATE TABLE (\w+)", schema)
    assert len(tables) > 15
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


def test_every_module_that_the_architecture_page_names_is_there() -> None:
    """A signpost to a file that was moved costs a reader more than none."""
    missing = []
    for line in (ROOT / "docs/architecture.md").read_text(encoding="utf-8").splitlines():
        room = re.match(r"\| `([a-z_/]+)/`", line)  # a row of the table, whose names are in this room
        for name in re.findall(r"`([a-z_/]+\.py)", line):
            at = ROOT / "src/onward" / (room[1] if room else "")
            if not (at / name).exists() and not (ROOT / name).exists():
                missing.append(name)
    assert missing == []


SIGNPOSTS = (
    r"`(?P<module>[a-z_/]+\.py): (?P<name>[\w.]+)`",
    r"`(?P<name>[\w.]+)` (?:in |of |\()`(?P<module>[a-z_/]+\.py)[`:]",
    r"`(?P<module>[a-z_/]+\.py)` \(`(?P<name>[\w.]+)`",
)
"""How the architecture page says in which module a name is."""


def lost_signposts(page: str) -> list[str]:
    text, lost = " ".join(page.split()), []
    for found in (match for signpost in SIGNPOSTS for match in re.finditer(signpost, text)):
        module = ROOT / "src/onward" / found["module"]
        module = module if module.exists() else ROOT / found["module"]
        name = found["name"].rpartition(".")[2]
        if not module.exists() or not re.search(rf"\b{name}\b", module.read_text(encoding="utf-8")):
            lost.append(found[0])
    return lost


def test_every_name_is_in_the_module_where_the_architecture_page_says_it_is() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert lost_signposts(page) == []
    assert sum(len(re.findall(signpost, " ".join(page.split()))) for signpost in SIGNPOSTS) > 30


def members(owner: ast.ClassDef) -> set[str]:
    """The methods of a class, its fields, and what it assigns to `self`."""
    found = set()
    for node in ast.walk(owner):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def test_every_member_that_the_architecture_page_names_is_in_its_class() -> None:
    page = " ".join((ROOT / "docs/architecture.md").read_text(encoding="utf-8").split())
    named = re.findall(r"`(?:[a-z_/]+\.py: )?([A-Z]\w+)\.(\w+)`", page)
    assert len(named) > 20
    heading = re.compile(rf"\bclass (?:{'|'.join({owner for owner, _ in named})})\b")
    classes: dict[str, set[str]] = {}
    for module in modules():
        for node in ast.walk(module.tree) if heading.search(module.text) else ():
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, set()).update(members(node))
    assert [f"{owner}.{name}" for owner, name in named if name not in classes.get(owner, ())] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "`NOWHERE` (`model/events.py`)",
        "`NOWHERE` in\n`model/events.py`",
        "`model/events.py` (`NOWHERE`)",
        "`model/events.py:\n  Event.nowhere`",
    ],
)
def test_a_name_that_has_moved_is_found(wrong: str) -> None:
    assert len(lost_signposts(f"A word, {wrong}, and `StepStarted` (`model/events.py`).")) == 1


def test_every_module_that_a_package_names_in_its_docstring_is_there() -> None:
    missing = []
    for module in modules():
        if module.path.name != "__init__.py":
            continue
        said = module.docstring.partition("\n\n")[0]
        for name in re.findall(r"(?:Begin with|and|then|,) `([a-z_]+)`", said):
            here = module.path.parent
            if not (here / f"{name}.py").exists() and not (here / name).is_dir():
                missing.append(f"{show(module.path)}: {name}")
    assert missing == []


def test_every_setting_and_its_variable_is_on_the_page() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(config.KNOWN)
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/onward/config").glob("*.py"))
    named = set(re.findall(r"ONWARD_\w+", source)) - {"ONWARD_IDEMPOTENCY_KEY"}  # of the step it is called in
    assert [name for name in sorted(named) if f"`{name}" not in page] == []


def test_every_variable_that_commands_get_is_on_the_page() -> None:
    page = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    told = [*ALWAYS_PASSED, "ONWARD_DB"]
    source = (ROOT / "src/onward/handlers/shell.py").read_text(encoding="utf-8")
    told += re.findall(r'"(ONWARD_\w+)"', source)
    assert len(told) > len(ALWAYS_PASSED) + 8
    assert [name for name in told if f"`{name}`" not in page] == []

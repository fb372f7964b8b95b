"""Every promise of tests/promises.toml has tests, and they exist."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from tests.shape.tree import PACKAGE, ROOT


def promises() -> list[dict[str, Any]]:
    with (ROOT / "tests" / "promises.toml").open("rb") as file:
        return [promise for section in tomllib.load(file)["section"] for promise in section["promise"]]


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of the tests in a file; none if there is no such file."""
    path = PACKAGE / "testing" / file if file.startswith("conformance/") else ROOT / "tests" / file
    return frozenset(_names(path)) if path.is_file() else frozenset()


def _names(path: Path) -> list[str]:
    return re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)


def rows(letters: str) -> list[str]:
    """The rows of promises that begin with one of these letters and a number, in order."""
    return [row for promise in promises() if re.fullmatch(rf"[{letters}]\d+", row := promise.get("row", ""))]


def test_every_promise_has_tests_that_exist() -> None:
    assert [promise["says"] for promise in promises() if not promise["tests"]] == []
    named = [test.partition("::") for promise in promises() for test in promise["tests"]]
    assert [f"{file}::{name}" for file, _, name in named if name not in names_in(file)] == []


def test_every_row_has_its_promise() -> None:
    """All but O10, going on in the middle of an agent's turns."""
    expected = [f"K{number}" for number in range(1, 24)]
    expected += [f"O{number}" for number in range(1, 23) if number != 10]
    assert rows("KO") == expected


def numbered(letter: str, last: int) -> set[str]:
    return {f"{letter}{number}" for number in range(1, last + 1)}


def test_every_row_of_the_dialect_has_its_promise() -> None:
    """All but D76, the HTTP mode, which comes with the server."""
    assert numbered("D", 75) | numbered("V", 13) | numbered("P", 22) <= set(rows("DPV"))

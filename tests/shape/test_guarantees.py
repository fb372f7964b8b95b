"""The tables of tests/README.md name tests that exist: a guarantee without its test is found here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.shape.tree import PACKAGE, ROOT

NAMED = re.compile(r"`([\w./]+\.py)::(test_\w+)`")
ROWS = re.compile(r"^\| ([KO]\d+) \|", re.MULTILINE)
DIALECT = re.compile(r"^\| ([DPV]\d+) \|(.*)$", re.MULTILINE)
README = ROOT / "tests" / "README.md"


def file_of(name: str) -> Path:
    inside = PACKAGE / "testing" / name
    return inside if name.startswith("conformance/") else ROOT / "tests" / name


def named() -> list[tuple[str, str]]:
    return sorted(set(NAMED.findall(README.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("file", "test"), named(), ids=lambda value: str(value))
def test_a_named_test_exists(file: str, test: str) -> None:
    path = file_of(file)
    assert path.is_file(), f"tests/README.md names {file}, which is not there"
    assert f"def {test}(" in path.read_text(encoding="utf-8"), f"{file} has no {test}"


def test_every_row_has_its_test() -> None:
    """All but O10, going on in the middle of an agent's turns."""
    rows = [f"K{number}" for number in range(1, 24)]
    rows += [f"O{number}" for number in range(1, 23) if number != 10]
    assert ROWS.findall(README.read_text(encoding="utf-8")) == rows
    table = [line for line in README.read_text(encoding="utf-8").splitlines() if ROWS.match(line)]
    assert all(NAMED.search(line) for line in table)


def numbered(letter: str, *spans: tuple[int, int]) -> set[str]:
    return {f"{letter}{number}" for first, last in spans for number in range(first, last + 1)}


def test_every_row_of_the_dialect_has_its_test() -> None:
    """All but D76, the HTTP mode, which comes with the server."""
    found = DIALECT.findall(README.read_text(encoding="utf-8"))
    rows = {row for row, _ in found}
    wanted = numbered("D", (1, 75)) | numbered("V", (1, 13)) | numbered("P", (1, 22))
    assert wanted <= rows
    assert all(NAMED.search(rest) for _, rest in found)

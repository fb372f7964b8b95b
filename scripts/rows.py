"""Says which rows of the source documents and of the design a test shows, and which not yet: `make rows`.

`tests/rows.toml` has a sentence for every row. A test shows a row when its docstring names it ("S2-17").
Exits 1 when a test names a row that does not exist, when no test names a row that was shown before, and when
a row is shown that is still noted as `not_yet` or `no_behaviour`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
CONFORMANCE = TESTS / "conformance"
ROW = re.compile(r"\b(?:[SB]\d-\d+|[CDFHIKOPV]\d+)\b(?!-)")  # "K4" is a row of the design
Rows = Mapping[str, Mapping[str, Any]]
Named = Mapping[str, list[str]]


def read_rows() -> Rows:
    """Every row, by its id, in the order of the documents."""
    with (TESTS / "rows.toml").open("rb") as file:
        return tomllib.load(file)


def named_in_tests() -> dict[str, list[str]]:
    """The rows that tests name, each with those tests."""
    named: dict[str, list[str]] = {}
    for path in (*sorted(TESTS.rglob("test_*.py")), *sorted(CONFORMANCE.rglob("*.py"))):
        for test, row in named_in(path.read_text(encoding="utf-8")):
            named.setdefault(row, []).append(f"{path.relative_to(ROOT)}::{test}")
    return named


def named_in(source: str) -> Iterator[tuple[str, str]]:
    """The tests of a file with the rows that their docstrings name."""
    if ROW.search(source) is None:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for row in dict.fromkeys(ROW.findall(ast.get_docstring(node) or "")):
                yield node.name, row


def faults(rows: Rows, named: Named) -> list[str]:
    """What does not fit together, a sentence each."""
    unknown = [
        f"{test} names {row}, which is not in tests/rows.toml; correct the id."
        for row, tests in named.items()
        if row not in rows and "-" in row  # tests may name more of the design than is listed
        for test in tests
    ]
    lost = [
        f"{row} was shown and no test names it any more: {told['says']} Name it in the test that shows it."
        for row, told in rows.items()
        if not (told.get("not_yet") or told.get("no_behaviour")) and row not in named
    ]
    noted = [
        f"{row} is named by {named[row][0]}; take its `{note}` out of tests/rows.toml."
        for row, told in rows.items()
        for note in ("not_yet", "no_behaviour")
        if told.get(note) and row in named
    ]
    return [*unknown, *lost, *noted]


def report(rows: Rows, named: Named) -> str:
    """What is shown, by which tests, and what not yet."""
    shown = [row for row in rows if row in named]
    lines = [f"{len(shown)} of {len(rows)} rows are shown by tests", ""]
    for row in shown:
        lines += [f"{row:6} {rows[row]['says']}", *(f"         {test}" for test in named[row])]
    left = [row for row in rows if row not in named]
    lines += ["", "No behaviour to show:"]
    lines += [
        f"{row:6} {rows[row]['says']} ({why})" for row in left if (why := rows[row].get("no_behaviour"))
    ]
    lines += ["", "Not yet:"]
    lines += [f"{row:6} {rows[row]['says']}" for row in left if not rows[row].get("no_behaviour")]
    return "\n".join(lines)


def main() -> int:
    rows, named = read_rows(), named_in_tests()
    print(report(rows, named))
    found = faults(rows, named)
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

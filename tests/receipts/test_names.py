"""Where files lie: one place for each thing, and no name that leads elsewhere."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.receipts.folder import NAME_CHARACTERS_MAX, artifact_name, attempt_path, step_name

HOSTILE = [
    "",
    ".",
    "..",
    "../../etc",
    "/etc/passwd",
    "a/b",
    "a\0b",
    "a\nb",
    "~",
    "-rf",
    "\ud800",
    "é" * 300,
    "CON",
]
PLAIN = re.compile(r"[A-Za-z0-9_.%~\-]+")


@pytest.mark.parametrize(
    ("step", "attempt", "tries", "path"),
    [
        ("plan#1", 1, 1, "plan/1"),
        ("plan#2", 1, 1, "plan/2"),
        ("plan#1", 2, 1, "plan/1/attempt-2"),
        ("plan#1", 1, 2, "plan/1/try-2"),
        ("plan#1", 3, 2, "plan/1/attempt-3/try-2"),
        ("fan#1.lint/lint#1", 1, 1, "fan-1.lint/lint/1"),
        ("fan#1.lint/in#2.x/lint#1", 2, 1, "fan-1.lint/in-2.x/lint/1/attempt-2"),
        ("artifacts#1", 1, 1, "artifacts-/1"),
    ],
)
def test_every_try_of_every_attempt_has_a_path_of_its_own(
    step: str, attempt: int, tries: int, path: str
) -> None:
    """D52."""
    assert os.path.join(*attempt_path(step, attempt, tries)) == path


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_is_a_plain_file_name(text: str) -> None:
    names = [step_name(text), artifact_name(text), *attempt_path(f"{text}/{text}#1", 1)]
    for name in names:
        assert PLAIN.fullmatch(name)
        assert not name.startswith((".", "/"))
        assert len(name) <= NAME_CHARACTERS_MAX


@given(one=st.text(), other=st.text())
def test_two_names_never_become_one(one: str, other: str) -> None:
    for named in (step_name, artifact_name):
        assert (named(one) == named(other)) == (one == other)


def test_long_names_that_differ_at_their_end_stay_apart() -> None:
    assert artifact_name("x" * 400 + "1") != artifact_name("x" * 400 + "2")

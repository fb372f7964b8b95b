"""Errors as replies: every class has a status and a code, and what a server says names no command."""

from __future__ import annotations

import pytest

from onward import errors
from onward.errors import Refused, RunNotFound, joined, parted
from onward.operations.problems import STATUSES, code_of, status_of


def test_every_class_of_errors_has_a_status() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    assert {kind for kind in kinds if issubclass(kind, errors.OnwardError)} == set(STATUSES)


def test_a_class_of_an_application_is_told_as_the_one_above_it() -> None:
    class OddInput(errors.InvalidInput):
        pass

    assert (status_of(OddInput("odd")), code_of(OddInput("odd"))) == (422, "invalid_input")
    assert OddInput.code == "odd_input"


def test_a_refusal_has_its_own_code_and_says_its_advice_apart() -> None:
    error = Refused(
        "occupied", "run a is held by process 3; wait for it (--wait), or pause it with `onward pause a`."
    )
    assert (error.code, status_of(error)) == ("occupied", 409)
    assert error.message == "run a is held by process 3."
    assert error.advice == "wait for it (--wait), or pause it with `onward pause a`."
    assert (
        str(error) == "run a is held by process 3; wait for it (--wait), or pause it with `onward pause a`."
    )
    assert status_of(Refused("stale_head", "it moved.")) == 412


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        ("nothing to do.", "nothing to do.", ""),
        ("it has none; say `onward x`, then wait.", "it has none.", "say `onward x`, then wait."),
        ("it is lost. Nothing was changed; `onward verify a` shows it.",
         "it is lost. Nothing was changed.", "`onward verify a` shows it."),
        ("it (a; b) is odd; name one with --gate.", "it (a; b) is odd.", "name one with --gate."),
        ("a well-known; twice--told tale.", "a well-known; twice--told tale.", ""),
        ("", "", ""),
    ],
)  # fmt: skip
def test_advice_is_what_names_a_command_or_a_flag(text: str, message: str, advice: str) -> None:
    assert parted(text) == (message, advice)
    assert parted(joined(message, advice)) == (message, advice)


def test_a_missing_run_is_told_without_a_command() -> None:
    error = RunNotFound("abc", "abd")
    assert error.message == "no run 'abc' in this database; did you mean 'abd'?"
    assert error.advice == "`onward status` lists the runs."
    assert error.facts == {"wanted": "abc"}

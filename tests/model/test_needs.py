"""What a process must have to execute a run."""

from __future__ import annotations

import pytest

from onward.model.row import directory_need, handlers_missing, needed_directory, with_directory
from onward.model.values import is_named, missing_now


@pytest.mark.parametrize("workdir", ["/srv/app", "/my own/100%", "/a%20b", "/line\nbreak", "/größe"])
def test_a_directory_comes_back_from_its_need_which_has_no_space(workdir: str) -> None:
    need = directory_need(workdir)
    assert needed_directory(need) == workdir
    assert need.split() == [need]


def test_a_handler_is_not_taken_for_a_directory() -> None:
    assert [needed_directory(name) for name in ("tool", "dir", "dir:deploy")] == [None] * 3


def test_a_run_needs_one_directory_at_most() -> None:
    needs = with_directory(("tool",), "/old")
    assert with_directory(needs, "/new") == ("tool", "dir:/new")
    assert with_directory(needs, None) == ("tool",)


def test_a_run_that_executes_nothing_needs_no_directory() -> None:
    assert with_directory((), "/somewhere") == ()


def test_only_handlers_can_be_missing_as_handlers() -> None:
    assert handlers_missing(("agent", "tool", "dir:/x"), {"tool"}) == ["agent"]


def test_a_pattern_names_variables_by_their_beginning() -> None:
    named = [name for name in ("AWS_REGION", "AWS", "MY_AWS_KEY", "aws_region") if is_named(name, ["AWS_*"])]
    assert named == ["AWS_REGION"]


def test_a_variable_of_every_terminal_is_not_missed() -> None:
    assert missing_now(["TERM", "LC_ALL", "KEY", "KEPT"], ["KEPT"]) == ["KEY"]

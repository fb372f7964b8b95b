"""Agents under limits, seen from outside: what is said, and whether what is said to type works."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.cli.agents import TALK, with_model
from tests.cli.shell import Done, Shell


@pytest.fixture
def talk(shell: Shell) -> Iterator[Shell]:
    with with_model(shell, text="Hello there."):
        shell.write("talk.dot", TALK)
        yield shell


def hint(done: Done, before: str) -> list[str]:
    """The command that stands behind these words, without `onward`."""
    (line,) = [line for line in done.out.splitlines() if line.strip().startswith(before)]
    return shlex.split(line.strip().removeprefix(before))[1:]


def test_the_command_that_continues_a_run_after_a_limit_works_as_it_is_printed(talk: Shell) -> None:
    talk.inside("limits", "set", "run", "calls", "1")
    stopped = talk.inside("run", "talk.dot")
    assert stopped.code == 75
    words = hint(stopped, "continue with:")
    assert words[0] == "resume"
    assert words[2:] == ["--raise", "run.calls=2"]
    for command in ("status", "show"):
        assert hint(talk.inside(command, words[1]), "continue") == words
    assert talk.inside(*words).code == 0


def test_a_resume_that_would_stop_again_is_refused_and_says_what_to_type(talk: Shell) -> None:
    talk.inside("limits", "set", "run", "tokens", "150")
    assert talk.inside("run", "talk.dot", "--run-id", "short").code == 75
    refused = talk.inside("resume", "short")
    assert refused.code == 1
    assert "run/short has spent 0 of 150 tokens" in refused.err
    assert "--raise run.tokens=" in refused.err
    talk.inside("limits", "set", "run", "tokens", "0")
    assert "--raise" not in talk.inside("status", "short").out
    assert talk.inside("resume", "short").code == 0

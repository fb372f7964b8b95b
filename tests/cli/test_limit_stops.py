"""Agents under limits, seen from outside: what is said, and whether what is said to type works."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator

import pytest

from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.agents import TALK, with_model
from tests.cli.shell import Done, Shell, wait_until


@pytest.fixture
def talk(shell: Shell) -> Iterator[Shell]:
    with with_model(shell, ModelScript(default=ScriptedReply(text="Hello there."))):
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
    assert f"the limit of run/{words[1]} on calls is 1" in stopped.out  # the name that every command shows
    assert words[2:] == ["--raise", "run.calls=2"]
    for command in ("status", "show"):
        assert hint(talk.inside(command, words[1]), "continue") == words
    assert talk.inside(*words).code == 0


def test_a_run_at_a_limit_is_named_when_its_pipeline_runs_again(talk: Shell) -> None:
    talk.inside("limits", "set", "run", "calls", "1")
    talk.inside("run", "talk.dot", "--run-id", "one")
    again = talk.inside("run", "talk.dot", "--run-id", "two")
    assert again.code == 75, again.err
    assert "to continue that one instead: onward resume one --raise run.calls=2\n" in again.err


LOOP = """digraph loop { start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt="Say it."]
  test [shape=parallelogram, tool_command="false"]
  start -> a -> test; test -> a [condition="outcome=fail"]; test -> exit [condition="outcome=success"] }"""


def test_a_loop_without_an_end_stops_and_says_beforehand_at_how_much(talk: Shell) -> None:
    """The ceilings of a run are said once, when it starts; not where nothing asks a model."""
    talk.write("loop.dot", LOOP)
    stopped = talk.inside("run", "loop.dot", "--run-id", "loop")
    assert stopped.code == 75
    said = [line for line in stopped.out.splitlines() if line.startswith("  limits ")]
    assert said == [
        "  limits    at most 300 model requests and 25 visits to each agent without max_visits; "
        "for more: --raise run.calls=N or run.visits=N"
    ]
    words = hint(stopped, "continue with:")
    assert words == ["resume", "loop", "--raise", "run.visits=50"]
    for command in ("status", "show"):
        assert hint(talk.inside(command, "loop"), "continue") == words
    limit = talk.inside("show", "loop", "--json").json["limit"]
    assert (limit["measure"], limit["used"], limit["raise_to"]) == ("visits", 25, "run.visits=50")
    assert talk.inside("resume", "loop").code == 1
    assert talk.inside("resume", "loop", "--raise", "run.visits=26").code == 75
    assert len(talk.inside("calls", "loop", "--json").json) == 26
    raised = ("--raise", "run.visits=40", "--raise", "run.calls=900")
    queued = talk.inside("submit", "loop.dot", "--run-id", "later", *raised)
    assert "at most 900 model requests and 40 visits to each agent without max_visits" in queued.out
    (scope,) = [one for one in talk.inside("limits", "--json").json["scopes"] if one["scope"] == "run/later"]
    assert scope["calls"]["limit"] == 900
    assert "  limits " not in talk.inside("run", "loop.dot", "--simulate").out


@pytest.mark.parametrize("text", ["day.visits=3", "run.visits=x", "run.visit=3", "run=3"])
def test_a_ceiling_that_is_none_is_refused_before_anything_happens(talk: Shell, text: str) -> None:
    assert talk.inside("run", "talk.dot", "--run-id", "none", "--raise", text).code == 2
    assert talk.inside("submit", "talk.dot", "--run-id", "none", "--raise", "run.tokens=3").code == 2
    assert talk.inside("status", "none").code == 1


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


def test_an_answer_that_a_limit_keeps_short_is_told(talk: Shell) -> None:
    talk.inside("limits", "set", "run", "tokens", "1000")
    ran = talk.inside("run", "talk.dot", "--run-id", "short")
    assert ran.code == 0
    (call, _) = talk.inside("calls", "short", "--json").json
    ceiling = call["shortened_to"]
    assert 64 <= ceiling < 1000
    told = f"at most {ceiling:,} tokens for the answer"
    line = next(line for line in ran.out.splitlines() if line.endswith(told))
    assert line.split()[:2] == ["limited", "a#1"]
    assert f"answer limited at {ceiling:,} tokens by a limit" in talk.inside("calls", "short").out
    assert f"a limit left at most {ceiling:,} tokens" in talk.inside("show", "short", "a").out
    assert talk.inside("show", "short", "a", "--json").json["shortened_to"] == ceiling
    talk.inside("limits", "set", "run", "tokens", "0")
    assert "limited" not in talk.inside("run", "talk.dot", "--run-id", "whole").out
    assert {call["shortened_to"] for call in talk.inside("calls", "whole", "--json").json} == {None}


def test_costs_are_dollars(talk: Shell) -> None:
    talk.inside("run", "talk.dot", "--run-id", "priced")
    rows = talk.inside("calls", "priced").out.splitlines()[1:]
    assert all(" $0.0000" in row for row in rows)


@pytest.mark.crash
def test_a_killed_process_is_marked_and_the_estimate_of_its_call_is_shown(shell: Shell) -> None:
    stalls = ScriptRule(
        nth=1, reply=ScriptedReply(text="Once upon a time", break_after=3, break_with="stall")
    )
    with with_model(shell, ModelScript(rules=(stalls,))):
        shell.write("talk.dot", TALK)
        ran = shell.start("run", "talk.dot", "--run-id", "lost")
        wait_until(lambda: "Once" in shell.inside("messages", "lost").out, "the text")
        assert "process is gone" not in shell.inside("messages", "lost").out
        assert not shell.inside("calls", "lost", "--json").json[0]["is_gone"]
        ran.signal(signal.SIGKILL)
        ran.end()
        assert shell.inside("messages", "lost").out.endswith("\n[interrupted: its process ended]\n")
        (call,) = shell.inside("calls", "lost", "--json").json
        assert (call["state"], call["is_gone"]) == ("open", True)
        assert "open, process ended" in shell.inside("calls", "lost").out
        assert shell.inside("resume", "lost").code == 0
        assert "process is gone" not in shell.inside("messages", "lost").out
        lost = shell.inside("calls", "lost", "--json").json[0]
        assert (lost["state"], lost["is_gone"]) == ("lost", False)
        tokens = lost["estimated"]["tokens"]
        assert tokens > 8_192
        assert f"~{tokens:,}" in shell.inside("calls", "lost").out
        (day, note) = shell.inside("usage").out.splitlines()[1:]
        assert f" {tokens:,} " in day
        assert note.startswith("estimated: 1 call ")


def test_a_run_is_given_a_chat_and_a_project_whose_limits_count(talk: Shell) -> None:
    talk.inside("limits", "set", "project/shop", "calls", "1")
    stopped = talk.inside("run", "talk.dot", "--run-id", "one", "--chat", "support", "--project", "shop")
    assert stopped.code == 75
    assert "the limit of project/shop on calls is 1" in stopped.out
    shown = talk.read("one")
    assert (shown["chat"], shown["project"]) == ("support", "shop")
    page = talk.inside("show", "one").out
    assert "  chat     support\n  project  shop\n" in page
    assert "Hello there." in talk.inside("messages", "support").out
    line = json.dumps({"inputs": {}, "run_id": "two", "project": "tea"})
    talk.write("runs.jsonl", f"{line}\n")
    assert talk.inside("submit", "talk.dot", "--from-jsonl", "runs.jsonl", "--chat", "support").code == 0
    assert (talk.read("two")["chat"], talk.read("two")["project"]) == ("support", "tea")


def test_no_run_is_given_the_own_chat_of_a_run(talk: Shell) -> None:
    refused = talk.inside("run", "talk.dot", "--chat", "run/other")
    assert refused.code == 2
    assert "the chat 'run/other' has the name of a run's own chat; choose another." in refused.err

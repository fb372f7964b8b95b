"""Chats without a registered pipeline: a model answers, and knows what was said before."""

from __future__ import annotations

import signal

import pytest

from onward.testing.model_endpoint import RequestLedger
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.agents import with_model
from tests.cli.shell import Shell, wait_until

ASKED = "what is my name?"
NAMED = ScriptRule(contains=ASKED, remembers="My name is Ann.", reply=ScriptedReply(text="You are Ann."))
NEVER = ScriptedReply(text="You are Ann, and this never ends.", break_after=2, break_with="stall")
UNKNOWN = ScriptedReply(text="I do not know.")


@pytest.mark.parametrize("how", ["watch", "worker"])
def test_a_chat_without_a_pipeline_is_answered_from_what_was_said_before(shell: Shell, how: str) -> None:
    """One request for each message."""
    ledger = RequestLedger()
    with with_model(shell, ModelScript(rules=(NAMED,), default=UNKNOWN), ledger):
        for text in ("My name is Ann.", ASKED):
            assert shell("chat", "talk", text, *(("--watch",) if how == "watch" else ())).code == 0
            assert how == "watch" or shell("worker", "--until-idle").code == 0
        page = shell("chats", "show", "talk")
        runs = shell("chats", "show", "talk", "--json").json["runs"]
    assert "answer> You are Ann." in page.out
    assert len(ledger.entries) == 2
    assert [(run["pipeline"], run["intent"], run["scope"]) for run in runs] == [("answer", None, None)] * 2


@pytest.mark.crash
def test_an_answer_that_was_killed_is_asked_for_again_with_the_same_history(any_shell: Shell) -> None:
    """Killed while the model answers; "continue?" is said in between, and is not part of the request."""
    shell, ledger = any_shell, RequestLedger()
    rules = (ScriptRule(contains=ASKED, times=1, reply=NEVER), NAMED)
    with with_model(shell, ModelScript(rules=rules, default=UNKNOWN), ledger):
        assert shell("chat", "talk", "My name is Ann.", "--watch").code == 0
        killed = shell.start("chat", "talk", ASKED, "--watch")
        wait_until(lambda: len(ledger.entries) == 2, "the request that never ends")
        killed.signal(signal.SIGKILL)
        killed.end()
        done = shell("chat", "talk", "continue?", "--watch")
    assert (done.code, "answer> You are Ann." in done.out) == (0, True), done
    first, again = ledger.entries[1:]
    assert (again.body_hash, again.idempotency_key) == (first.body_hash, first.idempotency_key)


@pytest.mark.parametrize("watch", [(), ("--watch",)])
def test_without_a_provider_one_sentence_says_what_to_set(shell: Shell, watch: tuple[str, ...]) -> None:
    done = shell.inside("chat", "talk", "hello", *watch)
    assert (done.code, done.err, done.out.count("\n")) == (1, "", 1)
    assert "no model provider is set up: set OPENAI_API_KEY" in done.out
    page = shell.inside("chats", "show", "talk", "--json").json
    assert [one["role"] for one in page["messages"]] == ["user", "system"]
    assert page["runs"] == []


def test_a_provider_without_a_model_is_told_too(shell: Shell) -> None:
    shell.environment |= {"OPENAI_API_KEY": "canary-0123456789"}
    done = shell.inside("chat", "talk", "hello", "--watch")
    assert (done.code, "no model is configured" in done.out) == (1, True)

"""Chats without a registered pipeline: a model answers, and knows what was said before."""

from __future__ import annotations

from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.agents import with_model
from tests.cli.shell import Shell

REMEMBERS = ModelScript(
    rules=(
        ScriptRule(
            contains="what is my name?", remembers="My name is Ann.", reply=ScriptedReply(text="You are Ann.")
        ),
    ),
    default=ScriptedReply(text="I do not know."),
)


def test_a_chat_without_a_pipeline_is_answered_from_what_was_said_before(shell: Shell) -> None:
    with with_model(shell, REMEMBERS):
        assert shell("chat", "talk", "My name is Ann.", "--watch").code == 0
        done = shell("chat", "talk", "what is my name?", "--watch")
    assert done.code == 0, done
    assert "answer> You are Ann." in done.out

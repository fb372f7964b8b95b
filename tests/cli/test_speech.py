"""What agents say, on a terminal and in a pipe."""

from __future__ import annotations

import re

from onward.agents.model import ToolCall
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.agents import with_model
from tests.cli.shell import Shell

WORK = """
digraph work {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  a [prompt="Look around", allowed_tools="list"]
  start -> a -> exit
}
"""
LOOKS = ScriptRule(
    nth=1, reply=ScriptedReply(text="Let me look.", tool_calls=(ToolCall("c1", "list", "{}"),))
)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def lines(out: str) -> list[str]:
    """What was told of agents, without what a terminal took back again."""
    found = [ESCAPE.sub("", line).strip() for line in out.replace("\r", "\n").splitlines()]
    return list(dict.fromkeys(line for line in found if line.startswith(("used", "a>", "Two"))))


def test_a_pipe_has_whole_messages_and_the_uses_of_tools(shell: Shell) -> None:
    """In the order in which they came."""
    shell.write("work.dot", WORK)
    script = ModelScript(rules=(LOOKS,), default=ScriptedReply(text="It is empty.\nTwo lines."))
    with with_model(shell, script):
        done = shell.inside("run", "work.dot")
    assert done.code == 0, done.err
    assert lines(done.out) == ["a> Let me look.", "used      a#1  list  {}", "a> It is empty.", "Two lines."]
    assert done.out.index("Two lines.") < done.out.index("finished  a#1")


def test_a_terminal_shows_the_words_as_they_come_and_then_tells_the_same(shell: Shell) -> None:
    shell.write("work.dot", WORK)
    slow = ScriptedReply(text="It is empty.\nTwo lines.", delay_s=0.15)
    with with_model(shell, ModelScript(rules=(LOOKS,), default=slow)):
        done = shell.terminal("run", "work.dot").end()
    assert done.code == 0, done.out
    whole = ("a> Let me look.", "used      a#1  list  {}", "a> It is empty.", "Two lines.")
    assert all(line in done.out for line in whole), done.out
    assert re.search(r"a> (I|It|It i\w?|It is e\w*)\W", done.out), done.out


def test_an_answer_that_breaks_off_says_so(shell: Shell) -> None:
    shell.write("work.dot", WORK)
    broken = ScriptRule(nth=1, reply=ScriptedReply(text="I begin and", break_after=2))
    with with_model(shell, ModelScript(rules=(broken,), default=ScriptedReply(text="Done."))):
        done = shell.inside("run", "work.dot")
    assert "a [broken off]> I begin\n" in done.out, done.out
    assert "a> Done.\n" in done.out


def test_a_watched_chat_shows_each_message_once(shell: Shell) -> None:
    with with_model(shell, ModelScript(default=ScriptedReply(text="Hello to you."))):
        done = shell.inside("chat", "talk", "hello", "--watch")
    assert done.code == 0, done.err
    assert done.out.count("> Hello to you.") == 1, done.out

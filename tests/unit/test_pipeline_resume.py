"""Document 000's whole story but for its page, on both databases: a website builder that is talked to.

Its words and ours: its server is a worker here, its interrupted pipeline is the chat's stopped run, its
checkpoint a gate. The processes, the endpoint, the kills and the git repository are real ones.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from onward.testing.script import ScriptRule
from tests.cli.shell import Shell, Started, wait_until
from tests.examples.website import NEVER, agents, git, playing, requests, script
from tests.worker.conftest import shell as shell

pytestmark = [pytest.mark.slow, pytest.mark.crash]
CHAT = "bakery"
MESSAGE = "Build a website for my bakery"
PLAN = ["research", "design", "frontend", "backend", "styling", "review", "remediate", "summary"]
FEW, MANY = "2200", "500000"
DESIGN, STYLING = "/design#1/m1", "/fan#1.styling/styling#1/m1"
CUT_OFF = (
    ScriptRule(contains="You are the designer", times=1, reply=NEVER),
    ScriptRule(contains="You are the stylist", times=1, reply=NEVER),
)
"""The answers in the middle of which the server dies."""


def say(shell: Shell, text: str, *flags: str) -> Any:
    """Say something in the chat; what became of it."""
    return shell.inside("chat", CHAT, text, *flags, "--json").json


def chat(shell: Shell) -> Any:
    return shell.inside("chats", "show", CHAT, "--json").json


def told(shell: Shell) -> str:
    """What Onward itself has said in the chat."""
    texts = [message["text"] for message in chat(shell)["messages"] if message["role"] == "system"]
    return "\n".join(texts)


def serve(shell: Shell) -> Started:
    return shell.start("worker")


def restart(shell: Shell, server: Started) -> Started:
    """Kill the server, and start it again."""
    server.signal(signal.SIGKILL)
    server.end()
    return serve(shell)


def until(shell: Shell, run: str, *statuses: str) -> dict[str, Any]:
    """The run, once it has come to one of these."""
    wait_until(lambda: shell.read(run)["status"] in statuses, f"{run} to be {statuses}")
    return shell.read(run)


def asked(ledger: Path, request: str) -> bool:
    return any(key.endswith(request) for key in requests(ledger))


def test_the_whole_story_of_pipeline_resume(shell: Shell) -> None:
    """S0-6, S0-10, S0-12, S0-13, S0-14, S0-15, S0-16, S0-17, S0-19, S0-20, S0-21, S0-22, S0-23, S0-25, S0-26,
    S0-42, B0-3, B0-6, B0-8, B0-11.

    A limit stops the run, the server dies twice, a person chooses a direction. Whatever is said, it is one
    run with one plan until it completes, and no answer is paid for twice. Then a new message is a new run.
    """
    with playing(shell, script(*CUT_OFF)) as ledger:
        shell.inside("pipelines", "add", "website.dot")
        shell.inside("limits", "set", f"chat/{CHAT}", "tokens", FEW)
        server = serve(shell)
        run = _stops_at_the_limit(shell)
        server = _continues_after_a_restart(shell, run, server, ledger)
        server = _takes_the_direction_that_is_chosen(shell, run, server, ledger)
        _is_finished(shell, run, ledger)
        _fixes_what_a_new_message_asks_for(shell, run)
        server.signal(signal.SIGTERM)
        server.end()


def _stops_at_the_limit(shell: Shell) -> str:
    sent = say(shell, MESSAGE)
    run: str = sent["run"]["id"]
    assert (sent["outcome"], sent["run"]["intent"], sent["run"]["scope"]) == ("started", "build", "full")
    assert sent["run"]["planned_agents"] == PLAN
    stopped = until(shell, run, "interrupted")
    assert (stopped["reason"], stopped["limit"]["scope"]) == ("limit", f"chat/{CHAT}")
    wait_until(lambda: "limit" in told(shell), "what the chat says about the limit")
    page = chat(shell)
    assert (page["running"], page["interrupted_run"]) == (False, run)
    assert page["runs"][0]["agents_left"] == PLAN[1:], "research is done"
    still = say(shell, "continue?")
    assert (still["outcome"], "raise" in still["notice"]) == ("limit", True)
    return run


def _continues_after_a_restart(shell: Shell, run: str, server: Started, ledger: Path) -> Started:
    shell.inside("limits", "set", f"chat/{CHAT}", "tokens", MANY)
    assert _resumed(say(shell, "continue?")) == run
    wait_until(lambda: asked(ledger, DESIGN), "the designer's request")
    server = restart(shell, server)
    assert until(shell, run, "interrupted")["reason"] == "crash"
    assert _resumed(say(shell, "go on", "--resume")) == run
    until(shell, run, "waiting")
    return server


def _resumed(sent: Any) -> str:
    """The run that a message has resumed, for what it was started for."""
    assert sent["outcome"] == "resumed", sent
    assert (sent["run"]["user_message"], sent["run"]["planned_agents"]) == (MESSAGE, PLAN)
    found: str = sent["run"]["id"]
    return found


def _takes_the_direction_that_is_chosen(shell: Shell, run: str, server: Started, ledger: Path) -> Started:
    server = restart(shell, server)
    shown = say(shell, "Which ones are there?")
    assert shown["outcome"] == "gate"
    [gate] = shown["run"]["gates"]
    assert [choice["label"] for choice in gate["choices"]][:2] == ["Calm", "Market"]
    assert gate["choices"][1]["data"]["columns"] == 3
    answered = say(shell, "market")
    assert (answered["outcome"], answered["run"]["id"]) == ("answered", run)
    wait_until(lambda: asked(ledger, STYLING), "the stylist's request")
    wait_until(lambda: _branches_done(shell, run) == {"frontend", "backend"}, "the other branches")
    server = restart(shell, server)
    until(shell, run, "interrupted")
    assert chat(shell)["runs"][0]["agents_left"] == ["styling", "review", "remediate", "summary"]
    assert _resumed(say(shell, "continue?")) == run
    return server


def _branches_done(shell: Shell, run: str) -> set[str]:
    steps = shell.read(run)["steps"]
    return {
        step["node"] for step in steps if step["step"].startswith("fan#1.") and step["status"] == "success"
    }


def _is_finished(shell: Shell, run: str, ledger: Path) -> None:
    view = until(shell, run, "completed")
    assert agents(view) == PLAN
    visits = [step["step"] for step in view["steps"]]
    assert visits[-4:] == ["check#1", "version#1", "summary#1", "exit#1"]
    assert [step for step in visits if step.startswith("direction")] == ["direction#1"], "asked once"
    assert view["context"]["human.gate.data.columns"] == 3
    assert "people who live nearby" in view["context"]["brief"], "what research said before the kills"
    twice = {key.removeprefix(run) for key, times in requests(ledger).items() if times > 1}
    assert twice == {DESIGN, STYLING}, "only what the kills cut off was asked again"
    assert git(shell, "log", "--format=%s") == f"{MESSAGE}\nBegin"
    assert shell.inside("verify", run).code == 0
    lines = shell.inside("chats", "show", CHAT).out.splitlines()
    assert "frontend> I wrote index.html and app.js." in lines, "agents speak under their names"
    assert ".." not in told(shell), "no sentence ends twice"
    silent = {line for line in lines if line.endswith(">")}
    assert silent <= {"design [interrupted]>", "styling [interrupted]>"}, "what only used tools is not shown"


def _fixes_what_a_new_message_asks_for(shell: Shell, run: str) -> None:
    sent = say(shell, "The text is hard to read, fix the colors")
    assert (sent["outcome"], sent["run"]["intent"], sent["run"]["scope"]) == ("started", "fix", "styling")
    assert sent["run"]["id"] != run
    view = until(shell, sent["run"]["id"], "completed")
    assert agents(view) == ["diagnose", "styling", "review", "summary"], "no result of the first run counts"
    assert "color: #2b2622" in (shell.directory / "site/style.css").read_text()


def test_a_build_without_its_research_starts_anew_with_its_first_message(shell: Shell) -> None:
    """S0-27, S0-28: with nothing to resume a resume is a start; without research it is a fresh one."""
    with playing(
        shell, script(ScriptRule(contains="You are the researcher", times=1, reply=NEVER))
    ) as ledger:
        shell.inside("pipelines", "add", "website.dot")
        server = serve(shell)
        first = say(shell, MESSAGE, "--resume")
        assert first["outcome"] == "started"
        wait_until(lambda: asked(ledger, "/research#1/m1"), "the researcher's request")
        server = restart(shell, server)
        until(shell, first["run"]["id"], "interrupted")
        second = say(shell, "continue?")
        assert second["outcome"] == "started"
        assert (second["run"]["user_message"], second["run"]["planned_agents"]) == (MESSAGE, PLAN)
        assert second["run"]["id"] != first["run"]["id"]
        old = shell.read(first["run"]["id"])
        assert (old["status"], old["reason"]) == ("cancelled", "superseded")
        assert "research" in told(shell)
        until(shell, second["run"]["id"], "waiting")
        server.signal(signal.SIGTERM)
        server.end()

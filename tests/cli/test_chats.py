"""`onward chat`, `onward chats`, `onward dismiss`: what a person in front of a terminal sees."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.agents import TALK, with_model
from tests.cli.shell import GATE, Latch, Shell, pipeline, wait_until
from tests.redact import canary

KINDS = '{ graph [intents="build, fix, question", intent.question.words="?", scopes="full, styling"]'
SITE = pipeline(("research", "echo found"), ("design", "test ! -e broken")).replace("{", KINDS, 1)


@pytest.fixture
def site(shell: Shell) -> Shell:
    """A shell with one registered pipeline."""
    shell.write("site.dot", SITE)
    assert shell.inside("pipelines", "add", "site.dot", "--name", "site").code == 0
    return shell


def sent(shell: Shell, *words: str, code: int = 0) -> Any:
    done = shell.inside("chat", *words, "--json")
    assert done.code == code, done
    return done.json


def test_a_message_without_a_worker_is_queued_and_says_so(site: Shell) -> None:
    """As `onward submit` does."""
    done = site.inside("chat", "talk", "build me a page")
    assert done.code == 0
    assert "starts for chat talk (build, full" in done.out
    assert "no worker is running; start one with `onward worker`" in done.err
    assert site.inside("worker", "--until-idle").code == 0
    assert sent(site, "talk", "what is this?")["outcome"] == "started"


def test_with_watch_the_run_is_executed_here(site: Shell) -> None:
    """As `onward run` does, with its exit codes."""
    done = site.inside("chat", "talk", "build me a page", "--watch")
    assert (done.code, "design#1  success" in done.out, "completed: 4 steps" in done.out) == (0, True, True)
    assert "onward> Plan (build, full): site@1" in done.out
    site.write("broken", "")
    failed = site.inside("chat", "talk", "fix it", "--watch")
    assert (failed.code, "failed" in failed.out) == (1, True)
    again = sent(site, "talk", "--resume", "--watch", code=1)
    assert (again["outcome"], again["run"]["status"]) == ("resumed", "failed")
    Path(site.directory, "broken").unlink()
    again = sent(site, "talk", "--resume", "--watch")
    assert (again["outcome"], again["run"]["status"]) == ("resumed", "completed")


def test_a_message_comes_from_standard_input(site: Shell) -> None:
    done = site("chat", "talk", "-", "--json", stdin="build me\na page\n")
    assert (done.code, done.json["run"]["user_message"]) == (0, "build me\na page")


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["talk"], 2, "write a message, as in"),
        (["talk", ""], 2, "a message has 1 to 1,000,000 characters"),
        (["run/x", "hello"], 2, "is the chat of a run"),
        (["talk", "hi", "--fresh", "--resume"], 2, "fresh and resume contradict each other"),
        (["talk", "hi", "--pipeline", "no such"], 2, "cannot be the name of a registered pipeline"),
        (["talk", "hi", "--key", "k" * 501], 2, "shorten it"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_one_sentence_and_not_stored(
    site: Shell, words: list[str], code: int, why: str
) -> None:
    done = site.inside("chat", *words)
    assert (done.code, done.err.count("\n")) == (code, 1), done
    assert why in done.err
    assert site.inside("chats", "--json").json["chats"] == []


def test_a_message_that_nothing_can_follow_is_stored_and_exits_with_1(site: Shell) -> None:
    found = sent(site, "talk", "build it", "--pipeline", "shop", code=1)
    assert (found["outcome"], found["run"]) == ("refused", None)
    page = site.inside("chats", "show", "talk", "--json").json
    assert site.inside("chats", "talk", "--json").json == page
    assert [one["role"] for one in page["messages"]] == ["user", "system"]
    assert page["messages"][1]["text"] == found["notice"]


def test_why_nothing_was_started_is_printed_once(site: Shell) -> None:
    refused = site.inside("chat", "new", "hello", "--pipeline", "shop", "--watch")
    assert refused.code == 1
    (line,) = refused.out.splitlines()
    assert "shop" in line


def test_the_messages_of_a_chat_say_who_wrote_each(site: Shell) -> None:
    for text in ("hello", "are you there?"):
        assert site.inside("chat", "new", text, "--pipeline", "shop").code == 1
    lines = site.inside("messages", "new").out.splitlines()
    assert [line for line in lines if line.startswith("==>")] == ["==> you <==", "==> onward <=="] * 2
    assert lines[1] == "hello"


def test_a_gate_is_shown_and_answered_in_the_chat(shell: Shell) -> None:
    """S0-12, S0-14: 75 says that somebody is asked."""
    shell.write("gate.dot", GATE)
    assert shell.inside("pipelines", "add", "gate.dot", "--name", "gate").code == 0
    assert shell.inside("chat", "talk", "build it", "--watch", "--answers", "wait").code == 75
    shown = shell.inside("chat", "talk", "hello?")
    assert (shown.code, "waits for an answer; send one of its choices:" in shown.out) == (75, True)
    assert sent(shell, "talk", "no")["outcome"] == "answered"
    assert shell.inside("worker", "--until-idle").code == 0
    assert shell.inside("chats", "show", "talk", "--json").json["runs"][0]["status"] == "completed"


def test_the_same_key_is_one_message(site: Shell) -> None:
    first, again = sent(site, "talk", "build it", "--key", "k"), sent(site, "talk", "build it", "--key", "k")
    assert (first["message"], first["run"]["id"]) == (again["message"], again["run"]["id"])
    assert (first["is_repeat"], again["is_repeat"]) == (False, True)
    elsewhere = sent(site, "talk", "build it", "--key", "k", "--cwd", str(site.directory))
    assert elsewhere["is_repeat"] is True
    refused = site.inside("chat", "talk", "something else", "--key", "k", "--json")
    assert (refused.code, refused.error["code"]) == (1, "key_reused")


def test_a_chat_shows_what_runs_what_is_left_and_what_would_be_resumed(site: Shell) -> None:
    """S0-16, S0-18, S0-44: running, the executions with their steps, and the interrupted run or null."""
    page = f"chats show {sent(site, 'talk', 'build me a page', '--project', 'shop')['chat']} --json".split()
    first = site.inside(*page).json
    assert (first["running"], first["interrupted_run"], first["project"]) == (True, None, "shop")
    run = first["runs"][0]
    assert (run["intent"], run["scope"], run["user_message"]) == ("build", "full", "build me a page")
    waiting = sent(site, "talk", "and a footer")
    assert (waiting["outcome"], waiting["behind"]) == ("queued", run["id"])
    assert site.inside("pause", run["id"]).code == 0
    second = site.inside(*page).json
    assert (second["running"], second["interrupted_run"]) == (False, run["id"])
    assert [one["text"] for one in second["waiting"]] == ["and a footer"]
    assert site.inside("dismiss", run["id"]).code == 0
    assert site.inside(*page).json["interrupted_run"] is None
    assert site.inside("worker", "--until-idle").code == 0
    last = site.inside(*page).json
    assert [one["status"] for one in last["runs"]] == ["completed", "paused"]
    assert last["runs"][0]["completed"] == ["start#1", "research#1", "design#1", "exit#1"]
    listed = site.inside("chats", "--json").json["chats"]
    assert [(one["chat"], one["status"], one["waiting"]) for one in listed] == [("talk", "completed", 0)]
    for line in ("chat talk, project shop", "asked    build me a page", "you> and a footer"):
        assert line in site.inside("chats", "show", "talk").out


def test_chats_are_none_at_first_and_an_unknown_one_is_refused(site: Shell) -> None:
    assert "no chats yet" in site.inside("chats").err
    assert site.inside("chats", "show", "nowhere").code == 1
    assert site.inside("chats", "show").code == 2
    assert site.inside("chats", "list", "talk").code == 2


@pytest.mark.crash
def test_continue_after_a_kill_finishes_the_run(shell: Shell, tmp_path: Path) -> None:
    """S0-10, S0-42: `kill -9`, "continue?", finished; no finished step runs again."""
    latch = Latch(tmp_path / "latch")
    shell.write(
        "site.dot",
        pipeline(("research", "echo r >> ledger"), ("design", latch.command)).replace("{", KINDS, 1),
    )
    shell.inside("pipelines", "add", "site.dot", "--name", "site")
    begun = shell.start("chat", "talk", "build me a page", "--watch")
    latch.wait_reached()
    begun.signal(signal.SIGKILL)
    begun.end()
    page = shell.inside("chats", "show", "talk", "--json").json
    assert page["interrupted_run"] == page["runs"][0]["id"]
    resumed = shell.start("chat", "talk", "continue?", "--watch")
    latch.wait_reached()
    latch.release()
    done = resumed.end()
    assert (done.code, "is resumed (build, full" in done.out) == (0, True)
    assert "end any message here to continue" not in done.out  # it continues already
    assert Path(tmp_path, "ledger").read_text() == "r\n"
    assert len(shell.inside("chats", "show", "talk", "--json").json["runs"]) == 1


def test_the_settings_of_chats_are_checked(site: Shell) -> None:
    for text, why in (
        ("chats = 3", "chats in onward.toml is 3; write a table [chats]"),
        ('[chats]\non_message = "maybe"', "write one of auto, ask, never"),
        ("[chats]\nsilent = true", "sets silent; known settings are"),
        ('[chats.pipelines]\n"to sing" = "site"', "'to sing', which cannot be an intent; use up to 50"),
        ('[chats.pipelines]\nbuild = "no such"', "cannot be the name of a registered pipeline"),
        ("[chats]\nclassifier = 3", "write a model, as in"),
    ):
        site.write("onward.toml", text)
        done = site.inside("chats")
        assert (done.code, why in done.err) == (2, True), (text, done)
    site.write("onward.toml", '[chats]\non_message = "ask"\n[chats.pipelines]\nbuild = "site"\n')
    run = sent(site, "talk", "build me a page")["run"]["id"]
    site.inside("pause", run)
    assert sent(site, "talk", "hello", code=75)["outcome"] == "asked"


def test_no_secret_is_in_what_a_chat_stores_and_prints(any_shell: Shell) -> None:
    """Messages, plans and refusals of chats, on both databases."""
    shell = any_shell
    shell.environment |= {canary.NAME: canary.CANARY}
    shell.write("site.dot", SITE)
    assert shell("pipelines", "add", "site.dot", "--name", "site").code == 0
    done = [
        shell("chat", "talk", f"build a page for {canary.CANARY}", "--watch"),
        shell("chat", "talk", f"{canary.CANARY}!", "--pipeline", "none"),
        shell("chats", "show", "talk"),
    ]
    printed = {str(at): (one.out + one.err).encode() for at, one in enumerate(done)}
    assert [one.code for one in done] == [0, 1, 0]
    assert canary.look({**printed, **canary.database(shell.db)}) == []
    assert f"[redacted {canary.NAME}]".encode() in printed["2"]


READER = ModelScript(
    rules=(
        ScriptRule(
            contains="Say what the message wants",
            reply=ScriptedReply(text='{"intent": "fix", "scope": "styling"}'),
        ),
    ),
    default=ScriptedReply(text="Done."),
)


@pytest.mark.parametrize("how", ["watch", "worker"])
def test_a_model_reads_a_message_first_if_the_settings_name_one(shell: Shell, how: str) -> None:
    """S0-3, S0-4: in a small run of the chat, executed here with --watch, else by a worker."""
    with with_model(shell, READER):
        shell.write("talk.dot", TALK.replace("{", KINDS, 1))
        shell.write("onward.toml", '[chats]\nclassifier = "openai:gpt-4o-mini"\n')
        assert shell.inside("pipelines", "add", "talk.dot", "--name", "talk").code == 0
        words = ("chat", "talk", "build me a page", *(("--watch",) if how == "watch" else ()))
        done = shell(*words)
        assert done.code == 0, done
        assert "a model reads the message first" in done.out
        if how == "worker":
            assert shell("worker", "--until-idle").code == 0
        else:
            assert "a> Done." in done.out
        page = shell.inside("chats", "show", "talk", "--json").json
    (run,) = page["runs"]
    assert (run["status"], run["intent"], run["scope"]) == ("completed", "fix", "styling")
    assert any("read by openai:gpt-4o-mini" in one["text"] for one in page["messages"])


def test_a_limit_of_the_chat_stops_a_run_and_raising_it_lets_a_message_continue_it(shell: Shell) -> None:
    """S0-31, S0-32, S0-35, S0-36, B0-9: told in the chat, refused while it holds, continued when raised."""
    with with_model(shell, ModelScript(default=ScriptedReply(text="Done."))):
        shell.write("talk.dot", TALK)
        shell.inside("pipelines", "add", "talk.dot", "--name", "talk")
        shell.inside("limits", "set", "chat/talk", "calls", "1")
        assert shell("chat", "talk", "build me a page", "--watch").code == 75
        page = shell.inside("chats", "show", "talk", "--json").json
        (run,) = page["runs"]
        assert (run["status"], run["reason"], run["limit"]["scope"]) == ("interrupted", "limit", "chat/talk")
        assert any("is paused at a limit" in one["text"] for one in page["messages"])
        assert sent(shell, "talk", "continue?", code=1)["outcome"] == "limit"
        shell.inside("limits", "set", "chat/talk", "calls", "9")
        done = shell("chat", "talk", "continue?", "--watch")
        assert (done.code, "is resumed" in done.out) == (0, True), done
        calls = shell.inside("calls", run["id"], "--json").json
    assert len([call for call in calls if call["type"] == "model"]) == 2


APPROVAL = """digraph ap {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  ask [shape=hexagon, label="Deploy to production?"]
  deploy [shape=parallelogram, tool_command="touch deployed"]
  start -> ask
  ask -> deploy [label="Continue"]
  ask -> exit [label="Stop"]
  deploy -> exit
}"""


def test_a_resume_without_words_approves_nothing(shell: Shell) -> None:
    shell.write("ap.dot", APPROVAL)
    assert shell.inside("pipelines", "add", "ap.dot").code == 0
    assert shell.inside("chat", "talk", "build it", "--watch").code == 75
    done = shell.inside("chat", "talk", "--resume", "--watch")
    assert (done.code, "Deploy to production?" in done.out) == (75, True)
    assert not Path(shell.directory, "deployed").exists()


def test_a_resume_without_words_needs_a_run_to_resume(site: Shell) -> None:
    """Nobody has said what a new run should do."""
    for _ in range(2):
        done = site.inside("chat", "talk", "--resume")
        assert (done.code, done.err) == (
            1,
            "onward: chat talk has no run to resume; write a message that says what to do.\n",
        )
        assert site.inside("chat", "talk", "build me a page", "--watch").code == 0


def test_a_message_that_is_sent_again_executes_nothing_again(site: Shell) -> None:
    """A failed run is resumed only if that is said, and a dismissed one not at all."""
    site.write("site.dot", SITE.replace("test ! -e broken", "echo x >> tries; false"))
    assert site.inside("pipelines", "add", "site.dot", "--name", "site").code == 0
    words = ("talk", "build me a page", "--key", "k", "--watch")
    first = sent(site, *words, code=1)
    assert first["is_repeat"] is False
    assert sent(site, *words, code=1)["is_repeat"] is True
    assert site.inside("dismiss", first["run"]["id"]).code == 0
    assert sent(site, *words, code=1)["run"]["status"] == "failed"
    assert Path(site.directory, "tries").read_text() == "x\n"


def test_a_long_standard_input_is_refused_and_not_cut(site: Shell) -> None:
    done = site("chat", "talk", "-", stdin="a" * 1_000_000 + " " * 200_000 + "more")
    assert (done.code, "a message has 1 to 1,000,000 characters" in done.err) == (2, True)
    assert site("chat", "talk", "-", stdin="a" * 1_000_000 + "\n").code == 0


def test_bytes_that_are_no_text_are_refused_in_a_sentence(site: Shell) -> None:
    done = site("chat", "talk", "\udcff")
    assert (done.code, "the message '?' is not valid UTF-8" in done.err) == (2, True)


def test_a_message_that_is_never_taken_up_is_not_finished(site: Shell) -> None:
    """It waits for a run that nothing executes: that is said, and Ctrl-C does not mean success."""
    assert site.inside("chat", "talk", "build one").code == 0
    waiting = site.start("chat", "talk", "build two", "--watch")
    waiting.wait_for("comes first; the message waits until it has ended")
    waiting.signal(signal.SIGINT)
    done = waiting.end()
    assert (done.code, "no worker is running" in done.err) == (75, True)


def test_the_newest_messages_of_a_chat_are_shown_however_long_they_are(shell: Shell) -> None:
    """A message of many chunks counts as one."""
    long = " ".join(f"word-{number}" for number in range(60_000))
    shell.write("talk.dot", TALK)
    assert shell.inside("pipelines", "add", "talk.dot").code == 0
    with with_model(shell, ModelScript(default=ScriptedReply(text=long))):
        assert shell.inside("chat", "talk", "build it", "--watch").code == 0
    page = shell.inside("chats", "show", "talk", "--json").json
    assert "build it" in [one["text"] for one in page["messages"]]


def test_a_chat_is_told_that_its_run_has_stopped_whoever_executes_it(site: Shell) -> None:
    site.write("broken", "")
    run = sent(site, "talk", "build me a page", "--watch", code=1)["run"]["id"]
    assert site.inside("resume", run).code == 1
    page = site.inside("chats", "show", "talk", "--json").json
    told = [one["text"] for one in page["messages"] if one["role"] == "system"]
    assert len([text for text in told if "failed (step_failed" in text]) == 2


@pytest.mark.slow
def test_a_message_that_waits_for_a_run_whose_process_was_killed_says_so(any_shell: Shell) -> None:
    """No worker is there that would notice."""
    latch = any_shell.latch("latch")
    any_shell.write("site.dot", pipeline(("a", f"test -e once || {{ touch once; {latch.command}; }}")))
    assert any_shell.inside("pipelines", "add", "site.dot", "--name", "site").code == 0
    first = any_shell.start("chat", "talk", "build one", "--watch")
    latch.wait_reached()
    run = any_shell.inside("chats", "show", "talk", "--json").json["runs"][0]["id"]
    waiting = any_shell.start("chat", "talk", "build two", "--watch")
    waiting.wait_for("comes first; the message waits until it has ended")
    first.signal(signal.SIGKILL)
    first.end()
    # Its log says so once the one that waits has looked for dead processes.
    wait_until(lambda: "RunInterrupted" in any_shell.inside("events", run, "--json").out, "the sweep")
    assert any_shell.inside("dismiss", run).code == 0
    done = waiting.end()
    assert done.code == 0, done.out + done.err
    assert "is interrupted; continue it with onward resume" in done.err

"""Commands against a server: they print what they print at a database, and document 004's words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onward.errors import AmbiguousRun, InvalidPipeline, PipelineNotFound, Refused, RunNotFound
from onward.operations.protocol import Operations
from onward.operations.remote import IGNORED, error_of
from tests.cli.shell import Shell
from tests.server.serving import Serving, serving, start

SOURCE = """digraph held {{ start [shape=Mdiamond]; exit [shape=Msquare]
work [shape=parallelogram, tool_command="{command}"]
ask [shape=hexagon, label="Ship it?"]
start -> work -> ask; ask -> exit [label="[Y] Yes"]; ask -> work [label="[N] Again"] }}"""


def at(server: Serving, *words: str) -> tuple[str, ...]:
    return (*words, "--server", f"http://127.0.0.1:{server.port}")


@pytest.mark.slow
@pytest.mark.crash
def test_a_run_is_resumed_and_answered_through_a_server_that_was_killed(any_shell: Shell) -> None:
    """S4-4, S4-25, S4-27, S4-29: the story of document 004, at the command line."""
    shell = any_shell
    latch = shell.latch("work")
    with serving(shell) as first:
        first.add("held", SOURCE.format(command=latch.command))
        first.post("/api/runs", {"pipeline": "held", "run_id": "wf-1"})
        latch.wait_reached()
        first.kill()
    with serving(shell) as second:
        assert "run wf-1: interrupted (Server restarted while workflow was running)" in second.told
        done = shell(*at(second, "resume", "wf-1"))
        assert (done.code, done.out) == (0, "Workflow wf-1 resumed\n")
        latch.wait_reached()
        again = shell(*at(second, "resume", "wf-1"))
        assert again.code == 1
        assert "wf-1" in again.err
        latch.release()
        second.until("wf-1", "waiting")
        assert "ask#1: Ship it?" in shell(*at(second, "answer")).out
        told = shell(*at(second, "answer", "wf-1", "Y"))
        assert (told.code, told.out) == (0, "run wf-1 has the answer and continues\n")
        second.until("wf-1", "completed")
        assert shell(*at(second, "cancel", "wf-1")).code == 1


@pytest.mark.slow
def test_what_is_read_through_a_server_is_what_is_read_at_the_database(shell: Shell) -> None:
    shell.write("held.dot", SOURCE.format(command="echo done"))
    shell("run", "held.dot", "--run-id", "one", "--answers", "wait")
    with serving(shell, "--no-worker") as server:
        for words in (
            ("status", "one"),
            ("status", "--json"),
            ("show", "one", "--json"),
            ("show", "one", "work", "--json"),
            ("events", "one", "--json"),
            ("checkpoints", "one", "--json"),
            ("calls", "one", "--json"),
            ("messages", "one"),
            ("answer", "--json"),
        ):
            here, there = shell(*words), shell(*at(server, *words))
            assert there.code == here.code, there.err
            assert _plain(there.out) == _plain(here.out), words
        asked = {**shell.environment, "ONWARD_SERVER": f"http://127.0.0.1:{server.port}"}
        shell.environment = asked
        (run,) = shell("status", "--json").json
        assert run["id"] == "one"
        assert shell("show", run["display_id"], "--json").json["id"] == "one"


def _plain(text: str) -> object:
    """Without what a list over HTTP leaves out, and without ages."""
    if text.startswith("[{"):
        return [{key: value for key, value in row.items() if key != "completed"} for row in json.loads(text)]
    return [line for line in text.splitlines() if "changed" not in line and "continue" not in line]


@pytest.mark.slow
def test_a_run_is_submitted_to_a_server_as_to_the_database(shell: Shell) -> None:
    shell.write("gate.dot", "digraph gate { start [shape=Mdiamond]; exit [shape=Msquare]; start -> exit }")
    with serving(shell, "--no-worker") as server:
        server.add("held", SOURCE.format(command="echo $topic"))
        words = (
            "submit",
            "held",
            "--run-id",
            "one",
            "--set",
            "topic=tea",
            "--tag",
            "nightly",
            "--priority",
            "3",
        )
        done = shell(*at(server, *words))
        assert (done.code, done.out.splitlines()[0]) == (0, "run one: held is queued")
        run = shell("show", "one", "--json").json
        assert (run["context"]["topic"], run["tags"], run["on_owner_loss"]) == ("tea", ["nightly"], "requeue")
        file = shell(*at(server, "submit", "gate.dot"))
        assert (file.code, "onward pipelines add gate.dot" in file.err) == (2, True)
        many = shell(*at(server, "submit", "held", "--from-jsonl", "-"))
        assert many.code == 2
        assert "--from-jsonl cannot be sent to a server" in many.err


@pytest.mark.slow
def test_a_message_is_sent_and_followed_through_a_server(shell: Shell) -> None:
    shell.environment |= {"ONWARD_CHATS": ""}
    with serving(shell) as server:
        server.add("held", SOURCE.format(command="echo done"))
        said = shell(*at(server, "chat", "c1", "do it", "--watch"))
        assert "starts for chat c1" in said.out
        assert "ask#1: Ship it?" in said.out
        assert said.code == 75
        shown = shell(*at(server, "chats", "show", "c1"))
        assert "asked    do it" in shown.out


@pytest.mark.slow
def test_pause_steer_dismiss_and_cancel_ask_the_server(shell: Shell) -> None:
    latch = shell.latch("work")
    with serving(shell) as server:
        server.add("held", SOURCE.format(command=latch.command))
        server.post("/api/runs", {"pipeline": "held", "run_id": "wf-1"})
        latch.wait_reached()
        asked = shell(*at(server, "pause", "wf-1", "--no-wait"))
        assert (asked.code, asked.out) == (0, "run wf-1 has the request and is still running\n")
        latch.release()
        server.until("wf-1", "paused")
        assert shell(*at(server, "dismiss", "wf-1")).code == 0
        assert server.get("/api/runs/wf-1")["is_dismissed"]
        gone = shell(*at(server, "cancel", "wf-1", "--reason", "enough"))
        assert gone.code == 0
        assert "cancelled for good (enough)" in gone.out


def test_where_no_server_answers_it_says_so(shell: Shell) -> None:
    """S4-28."""
    done = shell.inside("resume", "wf-1", "--server", "http://127.0.0.1:9")
    assert done.code == 1
    assert done.err.startswith("onward: Server not running: nothing responds at http://127.0.0.1:9")


@pytest.mark.slow
def test_a_run_that_is_not_there_and_a_missing_token_are_told(shell: Shell) -> None:
    """S4-26."""
    with serving(shell, "--no-worker") as server:
        for words in (("resume", "nope"), ("pause", "nope"), ("cancel", "nope"), ("dismiss", "nope")):
            done = shell(*at(server, *words))
            assert done.code == 1
            assert done.err.startswith("onward: Workflow not found")
        Path(f"{shell.db}-token").unlink()
        done = shell(*at(server, "status"))
        assert done.code == 1
        assert "Set ONWARD_TOKEN" in done.err


@pytest.mark.slow
def test_a_profile_names_a_server_and_its_token(shell: Shell) -> None:
    server = start(shell, "--no-worker")
    place = shell.directory / ".config" / "onward"
    place.mkdir(parents=True)
    address = f'server = "http://127.0.0.1:{server.port}"'
    (place / "profiles.toml").write_text(f'[work]\n{address}\ntoken = "{server.token}"\n[bare]\n')
    assert shell("status", "--profile", "work").out == "no runs\n"
    unknown = shell("status", "--profile", "home")
    assert unknown.code == 2
    assert "it has: bare, work" in unknown.err
    assert "needs `server`" in shell("status", "--profile", "bare").err
    server.kill()


@pytest.mark.parametrize("command", ["gc", "worker", "doctor", "verify", "serve", "workers"])
def test_a_command_of_the_databases_machine_refuses_a_server(shell: Shell, command: str) -> None:
    done = shell.inside(command, "--server", "http://127.0.0.1:9")
    assert done.code == 2
    assert f"`onward {command}` works on the machine with the database" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--server", "nowhere"), "is not an address"),
        (("--server", "http://a", "--profile", "b"), "both name a server"),
        (("--server", "http://a", "--db", "x.db"), "give one of them"),
        (("--server", ""), "--server is empty"),
    ],
)
def test_a_server_that_cannot_be_meant_is_refused(shell: Shell, words: tuple[str, ...], says: str) -> None:
    done = shell.inside("status", *words)
    assert done.code == 2
    assert says in done.err


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "run_not_found", RunNotFound),
        (404, "pipeline_not_found", PipelineNotFound),
        (409, "ambiguous_run", AmbiguousRun),
        (422, "invalid_pipeline", InvalidPipeline),
        (409, "invalid_state", Refused),
        (412, "stale_head", Refused),
        (409, "a_code_of_tomorrow", Refused),
    ],
)
def test_a_problem_is_the_exception_that_it_was(status: int, code: str, kind: type[Exception]) -> None:
    error = error_of({"status": status, "code": code, "detail": "Because.", "details": {"run": "x"}})
    assert type(error) is kind
    assert str(error) == "Because."


def test_what_http_leaves_out_is_ignored_by_name_alone() -> None:
    assert {"completed", "older", "follow"} == IGNORED
    assert {"lists", "look", "decide", "messages", "chats"} <= set(dir(Operations))

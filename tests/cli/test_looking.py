"""Looking at runs: names, lists, pages, logs, and what they print."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

from onward.model.ids import called, display_id
from tests.cli.shell import GATE, ONWARD, Shell, pipeline

RUN_NAMES = [
    "id", "display_id", "pipeline", "status", "reason", "detail", "recoverable", "completed", "next",
    "parent",
]  # fmt: skip
CHECKPOINT_NAMES = [
    "seq", "current_node", "next_node_id", "completed_nodes", "context", "retry_counters", "visited_outcomes",
    "reroute_count",
]  # fmt: skip
AGENT = "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; think [prompt=x]; start -> think -> exit }"


def runs(shell: Shell, *ids: str) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    for run_id in ids:
        assert shell.inside("run", "ok.dot", "--run-id", run_id).code == 0


def test_a_run_is_found_by_id_then_display_id_then_beginning(shell: Shell) -> None:
    """S3-9."""
    other = display_id("first")
    runs(shell, "first", f"{other}-more", "fir-two")
    assert shell.inside("status", other, "--json").json["id"] == "first"
    assert shell.inside("status", f"id:{other}", "--json").code == 1
    assert shell.inside("status", "id:first", "--json").json["id"] == "first"
    assert shell.inside("status", "fir-two", "--json").json["id"] == "fir-two"
    assert shell.inside("status", "fir-", "--json").json["id"] == "fir-two"
    assert shell.inside("status", display_id("fir-two")[:4], "--json").json["id"] == "fir-two"


def test_a_display_id_of_a_run_is_no_id_for_another(shell: Shell) -> None:
    runs(shell, "first", "parent")  # of the same form, and no run's display id
    done = shell.inside("run", "ok.dot", "--run-id", display_id("first"))
    assert (done.code, "it is the display id of another run (`onward show" in done.err) == (2, True)
    assert shell.inside("submit", "ok.dot", "--run-id", display_id("first")).code == 2
    assert shell.inside("replay", "first", "--from", "a", "--run-id", display_id("first")).code == 2
    assert len(shell.inside("status", "--json").json) == 2


def test_an_ambiguous_name_lists_the_matches(shell: Shell) -> None:
    runs(shell, "fir-one", "fir-two")
    done = shell.inside("status", "fir", "--json")
    assert (done.code, done.error["code"]) == (1, "ambiguous_run")
    assert done.error["matches"] == [f"{display_id(run)} ({run})" for run in ("fir-one", "fir-two")]
    assert all(match in done.err for match in done.error["matches"])


def test_the_json_of_a_run_has_its_stable_names_everywhere(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    made = shell.inside("run", "ok.dot", "--run-id", "work", "--json").json
    listed = shell.inside("status", "--json").json[0]
    one, shown = shell.inside("status", "work", "--json").json, shell.read("work")
    for view in (made, listed, one, shown):
        assert list(view)[: len(RUN_NAMES)] == RUN_NAMES
        assert view["completed"] == ["start#1", "a#1", "exit#1"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", view["created_at"])
    assert listed == one
    assert {
        **made,
        **{name: shown[name] for name in ("steps", "forks", "children", "left", "progress", "timeline")},
    } == shown


def test_events_are_one_object_a_line(shell: Shell) -> None:
    runs(shell, "work")
    events = shell.log("work")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["kind"] for event in events][:3] == ["RunCreated", "RunClaimed", "StepFinished"]
    assert all(list(event)[:3] == ["seq", "kind", "at"] for event in events)
    behind = shell.inside("events", "work", "--json", "--after", "3").out.splitlines()
    assert [json.loads(line) for line in behind] == events[3:]
    assert len(shell.inside("events", "work").out.splitlines()) == len(events)


def test_checkpoints_have_the_whole_state(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "printf one"), ("b", "printf two")))
    assert shell.inside("run", "ok.dot", "--run-id", "work", "--set", "n:=1").code == 0
    found = shell.inside("checkpoints", "work", "--json").json
    assert [name for name in CHECKPOINT_NAMES if name not in found[0]] == []
    assert [(one["current_node"], one["next_node_id"]) for one in found] == [
        (None, "start"),
        ("start", "a"),
        ("a", "b"),
        ("b", "exit"),
        ("exit", None),
    ]
    assert found[2]["completed_nodes"] == ["start", "a"]
    assert (found[2]["context"]["tool.output"], found[2]["context"]["n"]) == ("one", 1)
    assert found[3]["visited_outcomes"] == {"start": "success", "a": "success", "b": "success"}
    assert len(shell.inside("checkpoints", "work").out.splitlines()) == 1 + len(found)


def test_the_list_is_cut_and_says_so(shell: Shell) -> None:
    runs(shell, "one", "two", "three")
    done = shell.inside("status", "--limit", "2")
    assert len(done.out.splitlines()) == 4
    assert "1 older run" in done.out
    assert [run["id"] for run in shell.inside("status", "--limit", "2", "--json").json] == ["three", "two"]
    assert len(shell.inside("status", "--all", "--json").json) == 3
    assert shell.inside("status", "--status", "failed").out == "no runs that are failed\n"


def test_a_fresh_run_mentions_the_unfinished_one_and_never_reads_it(shell: Shell) -> None:
    """K8."""
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", "old").code == 75
    before = shell.log("old")
    done = shell.inside("run", "gate.dot", "--run-id", "new", "--db", shell.db)
    name = called("old")
    assert f"has an unfinished run, {name} (waiting); to continue that one instead: " in done.err
    assert f"onward answer {name} --db {shell.db}" in done.err
    assert shell.read("new")["completed"] == ["start#1"]
    assert shell.log("old") == before
    assert (
        "this pipeline has 2 unfinished runs, the newest is new (waiting); "
        "to continue that one instead: onward answer new; onward status lists them\n"
    ) in shell.inside("run", "gate.dot").err
    shell.write("other.dot", GATE + "// another one\n")
    assert shell.inside("run", "other.dot").err == ""


def test_context_values_are_text_or_json(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    words = [
        word
        for value in ("a=1", "b:=1", "c:=[1,2]", "d=x=y", 'e:={"f": null}', "g=", "a=2")
        for word in ("--set", value)
    ]
    context = shell.inside("run", "ok.dot", "--json", *words).json["context"]
    assert {key: context[key] for key in "abcdeg"} == {
        "a": "2",
        "b": 1,
        "c": [1, 2],
        "d": "x=y",
        "e": {"f": None},
        "g": "",
    }


def test_simulated_agents_follow_their_script(shell: Shell) -> None:
    shell.write("think.dot", AGENT)
    shell.write("script.json", '{"think": [{"text": "deep thought", "context_updates": {"answer": 42}}]}')
    scripted = shell.inside("run", "think.dot", "--simulate", "script.json", "--json").json["context"]
    assert (scripted["last_response"], scripted["answer"]) == ("deep thought", 42)
    for words in (
        ("--simulate", "think.dot"),
        ("think.dot", "--simulate"),
        ("think.dot", "--simulate=script.json"),
    ):
        assert shell.inside("run", *words).code == 0


def test_a_run_is_watched_until_it_has_ended(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", latch.command)))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    watching, following = shell.start("status", "work", "--watch"), shell.start("events", "work", "--follow")
    watching.wait_for("running")
    following.wait_for("StepStarted")
    latch.release()
    assert running.end().code == 0
    watched, followed = watching.end(), following.end()
    assert (watched.code, followed.code) == (0, 0)
    assert re.fullmatch(
        r"(\w+  line  running  1 step  next a\n)(\w+  line  completed  3 steps\n)", watched.out
    )
    assert followed.out.splitlines()[-1].split()[3] == "RunCompleted"


def test_a_list_is_watched_until_ctrl_c(shell: Shell) -> None:
    runs(shell, "one")
    terminal = shell.terminal("status", "--watch")
    terminal.wait_for("completed")
    runs(shell, "two")
    terminal.wait_for("two")
    terminal.type("\x03")
    assert terminal.end().code == 0
    watching = shell.start("status", "--watch", "--json")
    watching.wait_for('"id":"two"')
    watching.signal(signal.SIGINT)
    assert watching.end().code == 0


def test_status_imports_nothing_that_runs_things(shell: Shell) -> None:
    runs(shell, "one")
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from onward.cli.main import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "status"],
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
    )
    assert "one" in done.stdout
    loaded = set(done.stderr.split())
    assert not {"rich", "psycopg", "onward.process", "onward.pipeline.build", "onward.engine.engine"} & loaded
    assert not [name for name in loaded if name.startswith("onward.handlers")]


@pytest.mark.parametrize("command", ["status", "events"])
def test_a_reader_that_leaves_is_no_error(shell: Shell, command: str) -> None:
    runs(shell, "one")
    words = [ONWARD, command, *(["one"] if command == "events" else [])]
    reading = subprocess.Popen(
        words, cwd=shell.directory, env=shell.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert reading.stdout is not None
    reading.stdout.close()
    _, err = reading.communicate()
    assert (reading.returncode, err) == (0, b"")


def test_a_run_goes_on_when_its_reader_leaves(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", latch.command), ("b", shell.noting())))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    assert running.process.stdout is not None
    running.process.stdout.close()
    latch.release()
    assert running.process.wait(30) == 0
    assert shell.ledger == ["b#1"]


def test_another_character_set_gets_escapes_and_json_stays_json(shell: Shell) -> None:
    runs(shell, "one")
    shell.environment |= {"PYTHONIOENCODING": "latin-1"}
    assert shell("run", "ok.dot", "--run-id", "two", "--set", "key=→ 😀").code == 0
    assert "key = \\u2192 \\ud83d\\ude00" in shell("show", "two").out
    assert shell("show", "two", "--json").json["context"]["key"] == "→ 😀"


def test_output_that_cannot_be_written_is_a_failure(shell: Shell) -> None:
    runs(shell, "one")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [ONWARD, "events", "one", "--json"], cwd=shell.directory, env=shell.environment, stdout=full,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "onward: the output could not be written: No space left on device.\n"


def test_what_a_step_wrote_down_is_on_the_page_of_its_run(shell: Shell) -> None:
    shell.write(
        "talkative.py",
        "from onward import Onward\napp = Onward()\n\n"
        '@app.handler("talk")\ndef talk(step):\n    step.log("seen\\n7 files")\n',
    )
    shell.write("talk.dot", AGENT.replace("prompt=x", "type=talk"))
    done = shell("run", "talk.dot", "--run-id", "work", "--app", "talkative:app")
    assert done.code == 0, done.err
    page = shell.inside("show", "work").out
    assert "LOG\n  think#1: seen 7 files\n" in page
    assert [step["log"] for step in shell.read("work")["steps"]] == [[], ["seen\n7 files"], []]
    assert 'log=["seen\\n7 files"]' in shell.inside("events", "work").out


def test_a_run_that_was_replayed_to_its_end_is_not_called_unfinished(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "test -e ready")))
    assert shell.inside("run", "line.dot", "--run-id", "old").code == 1
    assert "has an unfinished run, old" in shell.inside("run", "line.dot", "--run-id", "again").err
    shell.write("ready", "")
    assert shell.inside("replay", "old", "--from", "a", "--run-id", "fork").code == 0
    said = shell.inside("run", "line.dot").err
    assert "has an unfinished run, again (failed); " in said
    assert shell.inside("resume", "again").code == 0
    assert "unfinished" not in shell.inside("run", "line.dot").err


@pytest.mark.parametrize("run_id", ["Bad_Id", "old"])
def test_a_refused_id_is_all_that_is_said(shell: Shell, run_id: str) -> None:
    shell.write("line.dot", pipeline(("a", "exit 1")))
    assert shell.inside("run", "line.dot", "--run-id", "old").code == 1
    refused = shell.inside("run", "line.dot", "--run-id", run_id)
    assert refused.code in (1, 2)
    assert refused.err.count("\n") == 1
    assert "unfinished" not in refused.err


def test_a_dismissed_run_is_not_mentioned(shell: Shell) -> None:
    shell.write("work.dot", pipeline(("a", "false")))
    assert shell.inside("run", "work.dot", "--run-id", "old").code == 1
    assert shell.inside("dismiss", "old").code == 0
    assert "unfinished" not in shell.inside("run", "work.dot").err

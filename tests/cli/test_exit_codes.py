"""What a script learns of everything that goes wrong: an exit code, a sentence, and with --json an object."""

from __future__ import annotations

import json
import os
import re
import subprocess

import apsw
import pytest

from onward.operations.local.lists import SHORT_LOG
from tests.cli.shell import Shell, pipeline

AGENT = (
    "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; think [prompt=hm]; start -> think -> exit }"
)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("frobnicate",), 'Unknown command "frobnicate"'),
        (("run",), "`onward run` needs FILE|NAME. See"),
        (("steer", "x"), "`onward steer` needs TEXT. See"),
        (("run", "a.dot", "--set"), "--set needs a value. See"),
        (("status", "--limit", "1", "--limit", "2"), "--limit is given twice; give it once. See"),
        (("status", "--frobnicate"), "Unknown option: --frobnicate"),
        (("pause", "x", "--after", "lunch"), 'Invalid value "lunch"'),
        (("replay", "x", "--checkpoint", "many"), "See `onward replay --help`."),
        (("--frobnicate",), "Unknown option: --frobnicate. See `onward --help`."),
        (("messages",), "`onward messages` needs RUN|CHAT."),
        (
            ("--limit", "x", "status"),
            "--limit comes before the command; write it after, as in `onward status --limit …`.",
        ),
        (("run", "a.dot", "b.dot"), "Unexpected argument: b.dot. See"),
        (("status", "--status", "sleepy"), "Invalid value"),
    ],
)
def test_a_command_line_that_means_nothing_exits_2(shell: Shell, words: tuple[str, ...], says: str) -> None:
    done = shell.inside(*words)
    assert done.code == 2
    assert says in done.err
    assert done.err.startswith("onward: ")
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert shell.inside(*words, "--json").error["code"] == "usage"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "nothing.dot"), "cannot read the pipeline nothing.dot: there is no such file"),
        (("validate", "nothing.dot"), "cannot read the pipeline nothing.dot: there is no such file"),
        (("run", "."), "cannot read the pipeline .: Is a directory"),
        (("run", "ok.dot", "--set", "novalue"), "--set 'novalue' is invalid; write KEY=VALUE"),
        (("run", "ok.dot", "--set", "=x"), "--set '=x' is invalid"),
        (("run", "ok.dot", "--set", "key:={"), "--set key:= needs JSON"),
        (("run", "ok.dot", "--set", "key:=NaN"), "which JSON cannot represent"),
        (("run", "ok.dot", "--run-id", "Not An Id"), "cannot be a run id"),
        (("run", "ok.dot", "--answers", "nobody"), "--answers 'nobody' is unknown"),
        (("run", "ok.dot", "--simulate", "none.json"), "cannot read the simulation script none.json"),
        (("status", "x", "--all"), "--all applies to the list of runs; leave it out, or leave out the run"),
        (("status", "x", "--status", "failed"), "--status applies to the list of runs"),
        (("run", "ok.dot", "--simulate", "binary.json"), "binary.json is not UTF-8 at byte 1; save it as"),
        (("run", "ok.dot", "--simulate=bad.json"), "the simulation script bad.json is not JSON"),
        (("run", "ok.dot", "--simulate", "odd.json"), "odd.json:1: think[0]: Object contains unknown field"),
        (
            ("run", "agent.dot"),
            "node 'think' is an agent step and no model provider is set up; set OPENAI_API_KEY",
        ),
        (("run", "typed.dot"), "node 'a' needs handler 'mystery'"),
        (
            ("run", "ok.dot", "--app", "stall"),
            "--app 'stall' is not the name of an app; write MODULE:NAME or a file, as in stall:app or "
            "stall.py.",
        ),
        (
            ("run", "ok.dot", "--app", "lib/stall.py:ap"),
            "lib/stall.py does not exist",
        ),
        (
            ("run", "ok.dot", "--app", "lib/stall:app"),
            "write MODULE:NAME or a file, as in shop:app or shop.py.",
        ),
        (
            ("run", "ok.dot", "--app", "stall:ap"),
            "--app stall:ap: module stall has no 'ap'; did you mean stall:app?",
        ),
        (("run", "ko.dot"), "cannot read the pipeline ko.dot: there is no such file; did you mean ok.dot?"),
        (
            ("run", "sub/agent"),
            "cannot read the pipeline sub/agent: there is no such file; did you mean sub/agent.dot?",
        ),
        (("run", "ok.dot", "--app", "no.such:app"), "there is no module 'no.such'"),
        (
            ("run", "ok.dot", "--app", "broken:app"),
            "importing broken failed: ZeroDivisionError: division by zero",
        ),
        (
            ("run", "ok.dot", "--app", "needy:app"),
            "needy needs the module 'no_such_module_here', which is missing",
        ),
        (
            ("run", "ok.dot", "--app", "empty:app"),
            "--app empty:app: module empty has no 'app'; write `app = Onward(...)`",
        ),
        (
            ("run", "ok.dot", "--app", "empty:thing"),
            "--app empty:thing has the type int and is not an Onward app; write",
        ),
    ],
)
def test_what_cannot_be_used_exits_2_before_anything_begins(
    shell: Shell, words: tuple[str, ...], says: str
) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    shell.write("agent.dot", AGENT)
    shell.write("typed.dot", AGENT.replace("prompt=hm", "type=mystery").replace("think", "a"))
    shell.write("bad.json", "{")
    (shell.directory / "binary.json").write_bytes(b"{\xff")
    shell.write("odd.json", '{"think": [{"colour": "red"}]}')
    shell.write("broken.py", "1 / 0\n")
    shell.write("needy.py", "import no_such_module_here\n")
    shell.write("empty.py", "thing = 1\n")
    shell.write("stall.py", "from onward import Onward\napp = Onward()\n")
    (shell.directory / "sub").mkdir()
    shell.write("sub/agent.dot", AGENT)
    done = shell.inside(*words, "--json")
    assert done.code == 2
    assert says in done.err
    assert done.error["message"] in done.err.replace("onward: ", "")
    assert "Traceback" not in done.err
    assert shell.inside("status", "--json").json == []


def test_all_problems_of_a_pipeline_are_told_at_once_with_their_places(shell: Shell) -> None:
    shell.write("bad.dot", 'digraph bad {\n  a -> b [condition="what?"]\n  lonely\n}\n')
    done = shell.inside("run", "bad.dot")
    assert done.code == 2
    assert len(done.err.splitlines()) > 2
    assert all(line.startswith("bad.dot:") for line in done.err.splitlines())
    checked = shell.inside("validate", "bad.dot", "--json")
    assert checked.code == 2
    rules = {finding["rule"] for finding in checked.json}
    assert {"start_node", "terminal_node"} <= rules
    assert {"rule", "severity", "message", "file", "line", "column"} <= checked.json[0].keys()


def test_a_tool_without_a_command_is_found_before_anything_runs(shell: Shell) -> None:
    shell.write(
        "tool.dot", "digraph {\n  start; exit\n  fetch [shape=parallelogram]\n  start -> fetch -> exit\n}"
    )
    checked = shell.inside("validate", "tool.dot")
    assert checked.code == 2
    assert checked.out.startswith(
        "tool.dot:3:3: error [tool_command] tool node 'fetch' has no command to run"
    )
    assert shell.inside("run", "tool.dot").code == 2


def test_a_valid_pipeline_exits_0_with_its_warnings(shell: Shell) -> None:
    shell.write("agent.dot", AGENT.replace("[prompt=hm]", ""))
    done = shell.inside("validate", "agent.dot")
    assert done.code == 0
    assert "[prompt_on_llm_nodes]" in done.out
    assert done.out.endswith("agent.dot is valid: 3 nodes, 1 warning\n")
    found = shell.inside("validate", "agent.dot", "--json").json
    assert [finding["severity"] for finding in found] == ["info", "warning"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("status", "nobody"), "run_not_found"),
        (("show", "nobody"), "run_not_found"),
        (("events", "nobody"), "run_not_found"),
        (("checkpoints", "nobody"), "run_not_found"),
        (("resume", "nobody"), "run_not_found"),
        (("replay", "nobody", "--checkpoint", "1"), "run_not_found"),
        (("pause", "nobody"), "run_not_found"),
        (("cancel", "nobody"), "run_not_found"),
        (("answer", "nobody", "Y"), "run_not_found"),
        (("verify", "nobody"), "run_not_found"),
        (("run", "ok.dot", "--run-id", "work"), "run_exists"),
        (("resume", "work"), "invalid_state"),
        (("pause", "work"), "invalid_state"),
        (("cancel", "work"), "invalid_state"),
        (("answer", "work", "Y"), "no_open_gate"),
    ],
)
def test_a_refusal_exits_1_with_its_code_and_one_sentence(
    shell: Shell, words: tuple[str, ...], code: str
) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot", "--run-id", "work").code == 0
    before = shell.log("work")
    done = shell.inside(*words, "--json")
    assert (done.code, done.error["code"]) == (1, code)
    assert done.err == f"onward: {done.error['message']}\n"
    assert shell.log("work") == before


def test_a_checkpoint_that_is_none_is_a_usage_error(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot", "--run-id", "work").code == 0
    for seq in ("2", "0", "99"):
        done = shell.inside("replay", "work", f"--checkpoint={seq}")
        assert done.code == 2, seq
        assert "is not a checkpoint; `onward checkpoints work` lists them" in done.err


def test_a_run_that_fails_exits_1_and_one_that_is_cancelled_too(shell: Shell) -> None:
    shell.write("bad.dot", pipeline(("a", "echo oh no >&2; exit 4")))
    failed = shell.inside("run", "bad.dot", "--run-id", "bad")
    assert failed.code == 1
    assert "failed (step_failed): step a#1: exit code 4: oh no" in failed.out
    assert failed.out.splitlines()[-1].startswith("continue with: onward resume ")
    assert shell.inside("resume", "bad").code == 1


def test_a_damaged_history_exits_1_and_names_the_event(shell: Shell) -> None:
    shell.write("bad.dot", pipeline(("a", "false")))
    assert shell.inside("run", "bad.dot", "--run-id", "bad").code == 1
    db = apsw.Connection(shell.db)
    for name in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name[0]}")
    db.execute("UPDATE event SET body = replace(body, 'start#1', 'start#2') WHERE run_id = 'bad' AND seq = 3")
    db.close()
    for words in (("resume", "bad"), ("show", "bad")):
        done = shell.inside(*words, "--json")
        assert (done.code, done.error["code"], done.error["seq"]) == (1, "history_corrupt", 3)
    verified = shell.inside("verify", "--json")
    assert verified.code == 1
    assert verified.json["problems"] == 1
    assert "event 3" in verified.json["runs"][0]["problems"][0]


def test_a_list_names_the_steps_of_a_long_run_whose_end_is_damaged(shell: Shell) -> None:
    """One such run took the whole list away. Its steps themselves are sound."""
    shell.write("line.dot", pipeline(*((f"step{number}", "true") for number in range(SHORT_LOG // 2))))
    assert shell.inside("run", "line.dot", "--run-id", "long", "--simulate").code == 0
    sound = shell.inside("status", "--json").json
    assert sound[0]["head"] > SHORT_LOG
    db = apsw.Connection(shell.db)
    for name in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name[0]}")
    db.execute("UPDATE event SET body = '{' WHERE run_id = 'long' AND kind = 'RunCompleted'")
    db.close()
    assert shell.inside("status", "--json").json == sound


def test_verify_counts_what_it_checked(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot", "--run-id", "one").code == 0
    assert shell.inside("run", "ok.dot", "--run-id", "two").code == 0
    events = len(shell.log("one"))
    assert shell.inside("verify").out == f"2 runs, {2 * events} events checked, 0 problems\n"
    assert shell.inside("verify", "one").out == f"1 run, {events} events checked, 0 problems\n"


@pytest.mark.parametrize("words", [("run", "ok.dot"), ("status",), ("doctor",)])
def test_a_file_that_is_no_database_exits_1_with_one_sentence(shell: Shell, words: tuple[str, ...]) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    shell.write("onward.db", "these are not the runs you are looking for" * 100)
    os.chmod(shell.db, 0o600)
    done = shell.inside(*words, "--json")
    assert done.code == 1
    assert done.error["code"].startswith("store_")
    assert done.err.count("\n") == 1
    assert (shell.directory / "onward.db").read_text().startswith("these are not")


def test_only_run_makes_a_database(shell: Shell) -> None:
    assert shell.inside("status").code == 0
    assert shell.inside("status", "--json").json == []
    looking = (("status", "x"), ("show", "x"), ("verify",), ("stats",), ("doctor",))
    for words in (*looking, ("resume", "x"), ("pause", "x"), ("cancel", "x"), ("answer", "x")):
        done = shell.inside(*words, "--json")
        assert (done.code, done.error["code"]) == (1, "no_database")
    assert os.listdir(shell.directory) == []


def test_doctor_is_content_with_a_good_database_and_says_what_is_not(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot").code == 0
    done = shell.inside("doctor")
    assert done.code == 0, done.out
    assert {"python", "apsw", "durability", "integrity"} <= {
        line.split()[1] for line in done.out.splitlines()
    }
    bad = Shell(shell.directory, ":memory:").inside("doctor", "--json")
    assert bad.code == 1
    assert [found["subject"] for found in bad.json if not found["ok"]] == ["durability"]


def test_a_defect_is_one_line_and_a_traceback_only_on_request(shell: Shell) -> None:
    shell.write(
        "mine.py",
        "from onward import Onward\nfrom onward.pipeline.rules.check import Rule\napp = Onward()\n"
        "def spoil(subject):\n    raise KeyError('gone')\napp.rules.append(Rule('mine', 'error', spoil))\n",
    )
    shell.write("ok.dot", pipeline(("a", "true")))
    done = shell.inside("run", "ok.dot", "--app", "mine:app", "--json")
    assert (done.code, done.error["code"]) == (1, "defect")
    assert (
        done.err
        == "onward: this is a bug in Onward, please report it: KeyError: 'gone' (ONWARD_DEBUG=1 shows "
        "where)\n"
    )
    shell.environment["ONWARD_DEBUG"] = "1"
    assert "in spoil" in shell.inside("run", "ok.dot", "--app", "mine:app").err


def test_settings_come_from_flag_then_environment_then_file(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    shell.write("onward.toml", 'db = "file.db"\nanswers = "auto"\n')
    del shell.environment["ONWARD_DB"]
    assert shell.inside("run", "ok.dot", "--run-id", "by-file").code == 0
    shell.environment["ONWARD_DB"] = "environment.db"
    assert shell.inside("run", "ok.dot", "--run-id", "by-environment").code == 0
    assert shell.inside("run", "ok.dot", "--run-id", "by-flag", "--db", "flag.db").code == 0
    for name in ("file", "environment", "flag"):
        (listed,) = shell.inside("status", "--json", "--db", f"{name}.db").json
        assert listed["id"] == f"by-{name}"
    shell.write("onward.toml", 'colour = "red"\n')
    wrong = shell.inside("status")
    assert wrong.code == 2
    assert "onward.toml sets colour" in wrong.err
    shell.write("onward.toml", "db = 5\n")
    assert shell.inside("status").err == "onward: db in onward.toml is 5; write text in quotes.\n"
    (shell.directory / "onward.toml").write_bytes(b'db = "\xff"\n')
    unreadable = shell.inside("status")
    assert (unreadable.code, unreadable.err) == (2, "onward: onward.toml is not UTF-8; save it as UTF-8.\n")


def test_the_version_is_told(shell: Shell) -> None:
    from onward.version import VERSION

    assert shell("--version").out.strip() == VERSION
    assert shell.inside("version").out == f"onward {VERSION}\n"
    assert shell.inside("version", "--json").json == {"version": VERSION}


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_is_printed_and_installed_nowhere(shell: Shell, name: str) -> None:
    done = shell.inside("completion", name)
    assert done.code == 0
    assert "onward" in done.out
    assert "__complete" in done.out
    assert os.listdir(shell.directory) == []


def test_every_command_has_help(shell: Shell) -> None:
    listed = shell("--help")
    assert listed.code == 0
    for command in (
        "validate",
        "run",
        "status",
        "show",
        "events",
        "checkpoints",
        "resume",
        "replay",
        "pause",
    ):
        assert f" {command} " in listed.out
    helped = shell.inside("resume", "--help")
    flags = (
        "--from",
        "--retry",
        "--skip",
        "--continue",
        "--abort",
        "--step",
        "--accept-changes",
        "--original",
    )
    more = ("--wait", "--take-over", "--dry-run", "--answers", "--db", "--json", "--app")
    assert [flag for flag in (*flags, *more) if flag not in helped.out] == []


def test_json_errors_leave_standard_output_parseable(shell: Shell) -> None:
    done = shell("resume", "nobody", "--json", "--db", str(shell.directory / "none.db"))
    assert done.code == 1
    assert json.loads(done.out)["error"]["message"] == done.err.removeprefix("onward: ").strip()


@pytest.mark.parametrize("db", ["mysql://host/name", "postgres:junk", "https://host/x"])
@pytest.mark.parametrize("command", ["stats", "doctor", "status"])
def test_an_address_of_an_unknown_kind_makes_no_file(shell: Shell, command: str, db: str) -> None:
    done = Shell(shell.directory, db).inside(command)
    assert done.code == 2
    assert "write postgresql://HOST/NAME" in done.err
    assert not list(shell.directory.iterdir())


def test_an_empty_name_is_no_database(shell: Shell) -> None:
    done = shell.inside("gc", "--db", "")
    assert (done.code, "--db is empty" in done.err) == (2, True)


def test_doctor_says_what_other_users_can_read_and_what_to_run(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot").code == 0
    runs = f"{shell.db}-runs"
    os.chmod(shell.db, 0o640)
    os.chmod(runs, 0o755)
    done = shell.inside("doctor", "--json")
    told = {one["subject"]: one["says"] for one in done.json if not one["ok"]}
    assert done.code == 1
    assert told.keys() == {"permissions", "files"}
    assert f"run `chmod 600 {shell.db}" in told["permissions"]
    assert told["files"] == f"{runs} can be read by other users: run `chmod 700 {runs}`"
    for says in told.values():
        for command in re.findall("`(chmod [^`]+)`", says):
            subprocess.run(command, shell=True, check=True)
    assert shell.inside("doctor").code == 0


@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_pipeline_that_cannot_be_read_makes_no_database(shell: Shell, command: str) -> None:
    assert shell.inside(command, "nothing.dot").code == 2
    assert os.listdir(shell.directory) == []


def test_doctor_does_not_make_the_database_that_it_is_asked_about(shell: Shell) -> None:
    done = shell.inside("doctor")
    assert done.code == 1
    assert "does not exist yet" in done.err
    assert not list(shell.directory.iterdir())


def test_a_list_of_nothing_is_refused(shell: Shell) -> None:
    assert shell.inside("status", "--limit", "0").code == 2

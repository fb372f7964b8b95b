"""`onward submit`: values from a file, many runs from lines, tags, a key, a time."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.shell import ONWARD, Shell, pipeline


@pytest.fixture
def shell(shell: Shell) -> Shell:
    shell.write("p.dot", pipeline(("a", "printf a")))
    return shell


def lines(*runs: object) -> str:
    return "".join(json.dumps(run) + "\n" for run in runs)


def test_values_come_from_a_file_and_set_overrides_them(shell: Shell) -> None:
    shell.write("values.json", json.dumps({"a": [1, 2], "b": "file"}))
    done = shell.inside("submit", "p.dot", "--set-file", "values.json", "--set", "b=flag", "--json")
    context = done.json["context"]
    assert (context["a"], context["b"]) == ([1, 2], "flag")


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read: No such file"), ("{", "is not JSON"), ("[1]", "is not a JSON object")],
)
def test_a_file_of_values_that_cannot_be_used_is_named(shell: Shell, content: str | None, says: str) -> None:
    if content is not None:
        shell.write("values.json", content)
    done = shell.inside("submit", "p.dot", "--set-file", "values.json")
    assert (done.code, f"--set-file values.json {says}" in done.err) == (2, True)
    assert "Traceback" not in done.err


def test_many_runs_come_from_lines_each_with_what_is_its_own(shell: Shell) -> None:
    shell.write(
        "runs.jsonl",
        lines(
            {"inputs": {"n": 1}, "run_id": "first", "tags": ["x"]}, {"inputs": {"m": 2}, "priority": 7}, {}
        ),
    )
    done = shell.inside(
        *("submit", "p.dot", "--from-jsonl", "runs.jsonl", "--set", "n:=0", "--tag", "bulk", "--json")
    )
    assert done.code == 0
    runs = done.json
    assert [run["status"] for run in runs] == ["queued"] * 3
    assert [run["tags"] for run in runs] == [["bulk", "x"], ["bulk"], ["bulk"]]
    assert runs[0]["id"] == "first"
    contexts = [shell.read(run["id"])["context"] for run in runs]
    assert [(context["n"], context.get("m")) for context in contexts] == [(1, None), (0, 2), (0, None)]
    assert shell.log(runs[1]["id"])[0]["priority"] == 7


def test_many_runs_come_from_standard_input(shell: Shell) -> None:
    done = subprocess.run(
        [ONWARD, "submit", "p.dot", "--from-jsonl", "-"],
        cwd=shell.directory,
        env=shell.environment,
        input=lines({}, {}) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "no worker is running; start one with `onward worker`\n")
    assert "2 runs of" in done.stdout


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "line 3: "),
        ('{"input": {}}', "line 3: Object contains unknown field `input`"),
        ('{"run_id": "No Good"}', "line 3: "),
        ('{"run_id": "first"}', "line 3: the run id 'first' belongs to an earlier run"),
        ('{"tags": ["no good"]}', "line 3: the tag 'no good' cannot be used"),
        ('{"priority": 99999999999}', "line 3: priority is"),
        ('{"inputs": {"internal.x": 1}}', "line 3: "),
        ('{"at": "soon"}', "line 3: at 'soon' is neither a time"),
        ("[]", "line 3: "),
        ("\xff", "line 3: "),
    ],
)
def test_a_bad_line_refuses_the_whole_file_before_anything_is_created(
    shell: Shell, bad: str, says: str
) -> None:
    """The second line is blank, and counts."""
    content = lines({"run_id": "first"}).encode() + b"\n" + bad.encode("latin-1") + b"\n" + lines({}).encode()
    (shell.directory / "runs.jsonl").write_bytes(content)
    done = shell.inside("submit", "p.dot", "--from-jsonl", "runs.jsonl")
    assert done.code == 2
    assert f"onward: runs.jsonl {says}" in done.err
    assert "nothing was created" in done.err
    assert "Traceback" not in done.err
    assert "no runs" in shell.inside("status").out


def test_an_id_that_a_run_has_refuses_the_whole_file(shell: Shell) -> None:
    assert shell.inside("submit", "p.dot", "--run-id", "there").code == 0
    shell.write("runs.jsonl", lines({}, {"run_id": "there"}))
    done = shell.inside("submit", "p.dot", "--from-jsonl", "runs.jsonl")
    assert (done.code, "runs.jsonl line 2: a run 'there' already exists" in done.err) == (2, True)
    assert len(shell.inside("status", "--json").json) == 1


def test_a_file_with_keys_can_be_submitted_again(shell: Shell) -> None:
    shell.write("runs.jsonl", lines({"key": "a"}, {"key": "b"}))
    first, again = (
        shell.inside("submit", "p.dot", "--from-jsonl", "runs.jsonl", "--json").json for _ in range(2)
    )
    assert [run["id"] for run in first] == [run["id"] for run in again]
    assert len(shell.inside("status", "--json").json) == 2


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--from-jsonl", "absent.jsonl"), "cannot read absent.jsonl: No such file"),
        (("--from-jsonl", "empty.jsonl"), "empty.jsonl has no runs"),
        (("--from-jsonl", "empty.jsonl", "--run-id", "x"), "--run-id names one run"),
        (("--at", "tomorrow"), "--at 'tomorrow' is neither a time with its zone"),
        (("--at", "2030-01-01T00:00:00"), "is neither a time with its zone"),
        (("--at", "+10"), "nor a delay, such as +10m"),
        (("--tag", "no good"), "the tag 'no good' cannot be used"),
        (("--exclusive-key", "k" * 501), "the exclusive key"),
    ],
)
def test_what_cannot_be_submitted_is_refused_in_a_sentence(
    shell: Shell, flags: tuple[str, ...], says: str
) -> None:
    shell.write("empty.jsonl", "\n")
    done = shell.inside("submit", "p.dot", *flags)
    assert (done.code, says in done.err) == (2, True), done.err
    assert "no runs" in shell.inside("status").out


def test_runs_are_found_by_their_tags(shell: Shell) -> None:
    for name, *tags in (("one", "red"), ("two", "red", "big"), ("three",)):
        flags = [word for tag in tags for word in ("--tag", tag)]
        assert shell.inside("submit", "p.dot", "--run-id", name, *flags).code == 0
    found = {
        tags: [run["id"] for run in shell.inside("status", "--json", *tags).json]
        for tags in (("--tag", "red"), ("--tag", "red", "--tag", "big"))
    }
    assert list(found.values()) == [["two", "one"], ["two"]]
    assert "no runs with the tags blue" in shell.inside("status", "--tag", "blue").out


def test_a_run_with_a_time_is_queued_until_then(shell: Shell) -> None:
    before = datetime.now(UTC)
    done = shell.inside("submit", "p.dot", "--run-id", "later", "--at", "+10m")
    assert "is queued, due at 2" in done.out
    wake_at = datetime.fromisoformat(shell.read("later")["wake_at"])
    assert timedelta(minutes=10) <= wake_at - before <= timedelta(minutes=11)
    at = (before + timedelta(days=2)).replace(microsecond=0)
    assert shell.inside("submit", "p.dot", "--run-id", "then", "--at", at.isoformat()).code == 0
    assert datetime.fromisoformat(shell.read("then")["wake_at"]) == at
    assert shell.inside("submit", "p.dot", "--run-id", "now", "--at", "2020-01-01T00:00:00Z").code == 0
    assert "1 run executed" in shell.inside("worker", "--until-idle").out
    assert [shell.read(name)["status"] for name in ("later", "then", "now")] == [
        "queued",
        "queued",
        "completed",
    ]


def test_an_exclusive_key_is_kept_with_the_run(shell: Shell) -> None:
    done = shell.inside("submit", "p.dot", "--exclusive-key", "deploy", "--json")
    assert done.json["exclusive_key"] == "deploy"


def test_submit_imports_nothing_that_runs_things(shell: Shell) -> None:
    """It is called once per run by scripts, so it must start quickly."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from onward.cli.main import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "submit", "p.dot"],
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "is queued" in done.stdout
    loaded = set(done.stderr.split())
    heavy = {
        "rich",
        "psycopg",
        "onward.process",
        "onward.app",
        "onward.engine.engine",
        "onward.receipts.receipt",
    }
    assert not heavy & loaded
    assert not [name for name in loaded if name.startswith(("onward.engine.files", "onward.workspace"))]


def test_a_submitted_run_still_gets_its_workspace(shell: Shell) -> None:
    """Which is imported only then."""
    for words in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(["git", *words], cwd=shell.directory, check=True, capture_output=True)
    done = shell.inside("submit", "p.dot", "--run-id", "tree", "--workspace", ".", "--json")
    assert (done.code, done.json["workspace"]["mode"]) == (0, "worktree"), done.err

"""A run that waits for an answer while its pipeline, its limits or its directory change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell, pipeline

ASKING = """digraph gate {
  start [shape=Mdiamond]; exit [shape=Msquare]
  ask [shape=hexagon, label="Ship it?"]
  ship [shape=parallelogram, tool_command="echo old >> shipped.txt"]
  drop [shape=parallelogram, tool_command="true"]
  start -> ask
  ask -> ship [label="[Y] Yes"]
  ask -> drop [label="[N] No"]
  ship -> exit; drop -> exit
}
"""
CHANGED = ASKING.replace("echo old", "echo new")


@pytest.fixture
def changed(shell: Shell) -> Shell:
    """A shell with a waiting run whose file has changed since it asked."""
    shell.write("gate.dot", ASKING)
    assert shell.inside("run", "gate.dot", "--run-id", "gate").code == 75
    shell.write("gate.dot", CHANGED)
    return shell


def shipped(shell: Shell) -> str:
    return (Path(shell.directory) / "shipped.txt").read_text()


@pytest.mark.parametrize("flag", ["--answers=auto", "--dry-run"])
def test_a_changed_file_is_refused_until_the_person_decides(changed: Shell, flag: str) -> None:
    before = changed.log("gate")
    done = changed.inside("resume", "gate", flag)
    assert (done.code, done.out) == (1, "")
    assert "gate.dot changed since run gate started" in done.err
    assert "resume with --accept-changes, or with --original" in done.err
    assert changed.log("gate") == before


def test_an_accepted_change_is_written_down_and_the_question_asked(changed: Shell) -> None:
    done = changed.inside("resume", "gate", "--accept-changes", "--answers", "auto")
    assert (done.code, shipped(changed)) == (0, "new\n")
    kinds = [event["kind"] for event in changed.log("gate")]
    assert kinds.index("PipelineChanged") < kinds.index("GateDecided")


def test_an_accepted_change_stays_when_nobody_answers_yet(changed: Shell) -> None:
    done = changed.inside("resume", "gate", "--accept-changes")
    assert done.code == 75
    assert "run gate waits for an answer at ask#1" in done.out
    assert changed.inside("answer", "gate", "Y").code == 0
    assert shipped(changed) == "new\n"


def test_an_accepted_change_that_is_left_to_workers_says_that_the_run_still_waits(changed: Shell) -> None:
    done = changed.inside("resume", "gate", "--accept-changes", "--queue")
    assert (done.code, done.out) == (
        0,
        "run gate still waits for an answer; answer with `onward answer gate`\n",
    )
    assert changed.read("gate")["status"] == "waiting"


def test_the_original_is_asked_about_and_continued(changed: Shell) -> None:
    assert changed.inside("resume", "gate", "--original", "--answers", "auto").code == 0
    assert shipped(changed) == "old\n"
    assert "PipelineChanged" not in [event["kind"] for event in changed.log("gate")]


def test_a_change_that_lacks_the_way_of_an_answer_is_refused(changed: Shell) -> None:
    """The question was put with its choices, and keeps them."""
    changed.write("gate.dot", CHANGED.replace("drop", "leave"))
    done = changed.inside("resume", "gate", "--accept-changes")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert (
        "no longer has nodes that run gate needs: drop; put them back, or resume with --original." in done.err
    )


def test_a_file_that_cannot_be_used_is_refused_with_the_way_to_do_without(changed: Shell) -> None:
    changed.write("gate.dot", ASKING.replace("ship ->", "shop ->"))
    done = changed.inside("resume", "gate", "--accept-changes")
    *errors, advice = done.err.splitlines()
    assert (done.code, "'shop'" in "".join(errors)) == (2, True)
    assert advice.endswith("correct it, or resume with --original for the stored source.")
    assert changed.inside("resume", "gate", "--original", "--answers", "auto").code == 0


def test_a_missing_file_means_the_stored_source_and_is_said(changed: Shell) -> None:
    (Path(changed.directory) / "gate.dot").unlink()
    done = changed.inside("resume", "gate", "--answers", "auto")
    assert (done.code, shipped(changed)) == (0, "old\n")
    assert "gate.dot no longer exists; continuing with the source stored with the run." in done.err


def test_a_limit_is_raised_before_the_question(shell: Shell) -> None:
    shell.write("gate.dot", ASKING)
    assert shell.inside("run", "gate.dot", "--run-id", "gate").code == 75
    assert shell.inside("limits", "set", "run/gate", "tokens", "1000").code == 0
    done = shell.inside("resume", "gate", "--raise", "run.tokens=2000", "--answers", "auto")
    assert (done.code, shipped(shell)) == (0, "old\n")
    (scope,) = [one for one in shell.inside("limits", "--json").json["scopes"] if one["scope"] == "run/gate"]
    assert scope["tokens"]["limit"] == 2000


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--restore-workspace"], 2, "run gate has no workspace to restore"),
        (["--answer", "c=1"], 1, "run gate waits for an answer at ask#1"),
        (["--repeat", "c"], 1, "run gate waits for an answer at ask#1"),
        (["--step", "ask"], 1, "run gate waits for an answer at ask#1"),
        (["--from", "ship"], 1, "run gate waits for an answer at ask#1"),
    ],
)
def test_no_flag_is_silently_ignored(shell: Shell, flags: list[str], code: int, says: str) -> None:
    shell.write("gate.dot", ASKING)
    assert shell.inside("run", "gate.dot", "--run-id", "gate").code == 75
    done = shell.inside("resume", "gate", *flags)
    assert (done.code, says in done.err) == (code, True)


def test_a_dry_run_shows_the_change_and_the_question(changed: Shell) -> None:
    done = changed.inside("resume", "gate", "--accept-changes", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines() if line.strip()][-3:-1] == ["USE", "ASK"]


def test_a_paused_run_that_starts_elsewhere_needs_no_way_of_its_question(changed: Shell) -> None:
    assert changed.inside("pause", "gate").code == 0
    changed.write("gate.dot", CHANGED.replace("drop", "leave"))
    done = changed.inside("resume", "gate", "--from", "ship", "--accept-changes")
    assert (done.code, shipped(changed)) == (0, "new\n")


def test_a_file_that_is_no_text_is_refused_with_the_way_to_do_without(changed: Shell) -> None:
    (Path(changed.directory) / "gate.dot").write_bytes(b"digraph \xff {}")
    done = changed.inside("resume", "gate")
    assert (done.code, "or resume with --original for the stored source." in done.err) == (2, True)


def test_a_run_that_was_moved_to_a_directory_that_is_gone_stops_no_worker(shell: Shell) -> None:
    there = Path(shell.directory) / "there"
    there.mkdir()
    shell.write("gate.dot", ASKING)
    assert shell.inside("run", "gate.dot", "--run-id", "gate").code == 75
    assert shell.inside("resume", "gate", "--cwd", "there", "--queue").code == 0
    assert shell.inside("answer", "gate", "Y", "--no-run").code == 0
    assert shell.inside("verify").code == 0
    there.rmdir()
    shell.write("other.dot", pipeline(("a", "true")))
    assert shell.inside("submit", "other.dot", "--run-id", "other", "--priority", "-1").code == 0
    done = shell("worker", "--until-idle")
    assert (done.code, shell.read("other")["status"]) == (0, "completed")
    assert shell.read("gate")["status"] == "queued"

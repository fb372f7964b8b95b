"""A real process is killed in a step that must not be repeated; a person sees what it left, and decides."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onward.model.ids import called
from tests.cli.shell import ONWARD, Shell, pipeline
from tests.workspace.repository import Repository

DOUBT = """
digraph doubt {{
  start [shape=Mdiamond]
  exit [shape=Msquare]
  pay [shape=parallelogram, repeatable=false, tool_command="{pay}"]
  tell [shape=parallelogram, tool_command="true"]
  start -> pay -> tell -> exit
}}
"""


def killed(shell: Shell, more: str = "true") -> None:
    """A run that was killed inside `pay`, which had written a file and begun its transcript."""
    latch = shell.latch("latch")
    told = "env | grep -e ONWARD_CONTINUED -e ONWARD_LEFT_DIR > told"
    first = f"echo 42 > paid.txt; echo half > $ONWARD_STEP_DIR/transcript.md; {more}; {latch.command}"
    shell.write("doubt.dot", DOUBT.format(pay=f"{told}; test -e paid.txt || {{ {first}; }}"))
    running = shell.start("run", "doubt.dot", "--run-id", "doubt")
    latch.wait_reached()
    running.process.kill()
    running.end()


def told(shell: Shell) -> dict[str, str]:
    """What the last attempt was told in its environment."""
    lines = (shell.directory / "told").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_show_names_what_a_killed_step_left(any_shell: Shell) -> None:
    killed(any_shell)
    shown = any_shell.inside("show", "doubt")
    assert "pay#1 was cut off in attempt 1; what it left: partial" in shown.out
    assert re.search(r"^    paid\.txt \(3 bytes\)$", shown.out, re.MULTILINE)
    assert re.search(r"^    transcript\.md \(5 bytes\)$", shown.out, re.MULTILINE)
    assert "open call  tool: env | grep" in shown.out
    assert "--retry|--skip|--continue|--abort" in shown.out
    view = any_shell.read("doubt")
    assert (view["status"], view["reason"], view["recoverable"]) == ("interrupted", "in_doubt", True)
    (left,) = view["left"]
    assert (left["step"], left["attempt"], left["assessment"]) == ("pay#1", 1, "partial")
    assert {"path": "paid.txt", "bytes": 3} in left["changed"]
    assert left["files"] == [{"path": "transcript.md", "bytes": 5}]
    assert not any("onward.db" in file["path"] for file in left["changed"]), "our own files are no sign"


def test_lists_say_that_a_killed_step_is_in_doubt_before_anybody_has_swept(any_shell: Shell) -> None:
    killed(any_shell)
    before = any_shell.log("doubt")
    shown = any_shell.read("doubt")
    for words in ((), ("doubt",), ("--status", "interrupted")):
        assert "interrupted (in_doubt)" in any_shell.inside("status", *words).out
        listed = any_shell.inside("status", *words, "--json").json
        (one,) = listed if isinstance(listed, list) else [listed]
        assert {name: one[name] for name in ("status", "reason", "detail", "recoverable")} == {
            name: shown[name] for name in ("status", "reason", "detail", "recoverable")
        }
    drawn = any_shell.inside("graph", "doubt", "--json").json
    assert (drawn["run"]["status"], drawn["run"]["reason"]) == ("interrupted", "in_doubt")
    assert any_shell.log("doubt") == before


def test_a_fresh_run_names_the_flags_that_decide_about_the_one_in_doubt(shell: Shell) -> None:
    """A plain resume would be refused."""
    killed(shell)
    said = shell.inside("run", "doubt.dot", "--run-id", "other").err
    assert "to continue that one instead: onward resume doubt --retry|--skip|--continue|--abort" in said


def test_a_plain_resume_shows_it_and_changes_nothing(any_shell: Shell) -> None:
    killed(any_shell)
    before = any_shell.log("doubt")
    refused = any_shell.inside("resume", "doubt")
    assert refused.code == 1
    assert "choose --retry, --skip, --continue or --abort" in refused.err
    assert "what it left: partial" in refused.err
    assert "paid.txt (3 bytes)" in refused.err
    asked = any_shell.inside("resume", "doubt", "--json").error
    assert (asked["code"], asked["left"][0]["assessment"]) == ("in_doubt", "partial")
    assert any_shell.log("doubt") == before


def test_a_dry_run_shows_it(shell: Shell) -> None:
    killed(shell)
    seen = shell.inside("resume", "doubt", "--continue", "--dry-run")
    assert seen.code == 0
    assert "RUN   pay#1  (attempt 2)" in seen.out
    assert "paid.txt (3 bytes)" in seen.out
    (left,) = shell.inside("resume", "doubt", "--continue", "--dry-run", "--json").json["left"]
    assert left["assessment"] == "partial"
    assert shell.inside("resume", "doubt", "--dry-run").code == 1


def test_a_continued_command_is_told_where_the_attempt_before_left_its_files(any_shell: Shell) -> None:
    killed(any_shell)
    done = any_shell.inside("resume", "doubt", "--continue")
    assert done.code == 0, done.err
    environment = told(any_shell)
    assert environment["ONWARD_CONTINUED"] == "1"
    assert (Path(environment["ONWARD_LEFT_DIR"]) / "transcript.md").read_text() == "half\n"
    assert any_shell.read("doubt")["left"] == []


def test_a_command_that_is_made_again_is_told_nothing_of_the_attempt_before(any_shell: Shell) -> None:
    killed(any_shell)
    assert any_shell.inside("resume", "doubt", "--retry").code == 0
    assert told(any_shell) == {}


@pytest.mark.parametrize(("flag", "status"), [("--skip", "completed"), ("--abort", "cancelled")])
def test_a_step_in_doubt_can_be_skipped_or_cancelled_and_is_not_executed(
    any_shell: Shell, flag: str, status: str
) -> None:
    killed(any_shell)
    (any_shell.directory / "told").unlink()
    assert any_shell.inside("resume", "doubt", flag).code == 0
    assert any_shell.read("doubt")["status"] == status
    assert not (any_shell.directory / "told").exists()


def test_of_many_files_ten_are_named_and_the_others_counted(shell: Shell) -> None:
    killed(shell, "mkdir out; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo x > out/$n; done")
    shown = shell.inside("show", "doubt").out
    assert len(re.findall(r"^    out/\d+ \(2 bytes\)$", shown, re.MULTILINE)) == 10
    assert re.search(r"^    and 4 more$", shown, re.MULTILINE), shown
    (left,) = shell.read("doubt")["left"]
    assert (left["changed_count"], len(left["changed"])) == (14, 14)


def test_in_another_directory_the_files_of_the_runs_own_are_seen(shell: Shell) -> None:
    """The run knows where its command worked; another project's changes are not its."""
    killed(shell)
    (shell.directory / "elsewhere").mkdir()
    elsewhere = Shell(shell.directory / "elsewhere", shell.db)
    (left,) = elsewhere.read("doubt")["left"]
    (here,) = shell.read("doubt")["left"]
    assert (left["place"], left["assessment"]) == (str(shell.directory), "partial")
    assert (left["changed"], left["unseen"]) == (here["changed"], here["unseen"])


def test_changes_in_the_runs_work_tree_are_seen(shell: Shell) -> None:
    """The work tree is the run's own, so nothing is left to guess."""
    Repository.make(shell.directory / "repo")
    latch = shell.latch("latch")
    pay = f"test -e paid.txt || {{ echo 42 > paid.txt; rm story; {latch.command}; }}"
    shell.write("doubt.dot", DOUBT.format(pay=pay))
    running = shell.start("run", "doubt.dot", "--run-id", "doubt", "--workspace", "repo")
    latch.wait_reached()
    running.process.kill()
    running.end()
    (left,) = shell.read("doubt")["left"]
    assert (left["assessment"], left["unseen"]) == ("partial", [])
    assert left["place"].endswith("/doubt/workspace")
    changed = [{"path": "paid.txt", "bytes": 3}, {"path": "story", "bytes": None}]
    assert left["changed"] == changed, "and not what was checked out when the step was planned"
    assert "story (removed)" in shell.inside("show", "doubt").out
    cancelled = shell.inside("abort", "doubt")
    assert cancelled.code == 0
    assert not Path(left["place"]).exists()
    assert "its unrecorded changes are kept as refs/onward/doubt/saved-" in cancelled.err


# -- several at once -------------------------------------------------------------------------------------

BRANCHES = """
digraph branches {{
  start [shape=Mdiamond]
  exit [shape=Msquare]
  fan [shape=component]
  join [shape=tripleoctagon]
  one [shape=parallelogram, repeatable=false, tool_command="{one}"]
  two [shape=parallelogram, repeatable=false, tool_command="{two}"]
  start -> fan
  fan -> one -> join
  fan -> two -> join
  join -> exit
}}
"""


def test_several_branches_killed_at_once_are_decided_one_by_one(any_shell: Shell) -> None:
    shell = any_shell
    latches = [shell.latch("first"), shell.latch("second")]
    one, two = (
        shell.noting(f"test -e did-{n} || {{ touch did-{n}; {latch.command}; }}")
        for n, latch in enumerate(latches)
    )
    shell.write("branches.dot", BRANCHES.format(one=one, two=two))
    running = shell.start("run", "branches.dot", "--run-id", "both")
    for latch in latches:
        latch.wait_reached()
    running.process.kill()
    running.end()
    steps = ["fan#1.one/one#1", "fan#1.two/two#1"]
    assert [left["step"] for left in shell.read("both")["left"]] == steps
    several = shell.inside("resume", "both", "--retry", "--json")
    assert (several.code, several.error["code"], several.error["steps"]) == (1, "several_stopped", steps)
    shell.inside("resume", "both", "--retry", "--step", "one")
    stopped = shell.read("both")
    assert (stopped["status"], stopped["reason"]) == ("interrupted", "in_doubt")
    assert [left["step"] for left in stopped["left"]] == steps[1:]
    assert shell.inside("resume", "both", "--skip").code == 0
    assert shell.read("both")["status"] == "completed"
    assert sorted(shell.ledger) == [steps[0], steps[0], steps[1]]


# -- effects ---------------------------------------------------------------------------------------------


def test_of_two_processes_that_race_for_an_effect_one_runs_it_and_both_have_its_result(
    any_shell: Shell,
) -> None:
    latch = any_shell.latch("latch")
    command = (
        "effect",
        "charge",
        "--json",
        "--",
        "sh",
        "-c",
        f"echo once >> ledger; {latch.command}; echo paid",
    )
    racing = [any_shell.start(*command), any_shell.start(*command)]
    latch.wait_reached()
    under_way = any_shell("effect", "charge", "--no-wait", "--json", "--", "true")
    assert (under_way.code, under_way.error["code"]) == (75, "effect_under_way")
    latch.release()
    ended = [process.end() for process in racing]
    assert [done.code for done in ended] == [0, 0]
    assert sorted(json.loads(done.out)["made"] for done in ended) == [False, True]
    assert {json.loads(done.out)["stdout"] for done in ended} == {"paid\n"}
    assert any_shell.ledger == ["once"]


def test_an_effect_inside_a_step_needs_no_database_named(shell: Shell) -> None:
    """The command is told of run, step, attempt, key and database; the effect is the step's own."""
    names = ("RUN_ID", "STEP", "ATTEMPT", "IDEMPOTENCY_KEY", "DB", "STEP_DIR", "RUN_DIR")
    variables = " ".join(f"$ONWARD_{name}" for name in names)
    pay = f"echo {variables} > seen; {ONWARD} effect charge -- sh -c 'echo x >> ledger'; test -e go"
    shell.write("pay.dot", DOUBT.format(pay=pay))
    assert shell.inside("run", "pay.dot", "--run-id", "pay").code == 1
    seen = (shell.directory / "seen").read_text().split()
    assert seen[:5] == ["pay", "pay#1", "1", "pay/pay#1", shell.db]
    assert len(seen) == len(names)
    (shell.directory / "go").touch()
    assert shell.inside("retry", "pay").code == 0
    assert shell.ledger == ["x"], "the second attempt got the first one's result"
    assert shell.inside("effect", "pay/pay#1/charge", "--json").json["state"] == "finished"


def test_an_effect_that_was_cut_off_with_its_step_is_shown(shell: Shell) -> None:
    latch = shell.latch("latch")
    pay = f"{ONWARD} effect charge -- sh -c '{latch.command}'"
    shell.write("pay.dot", DOUBT.format(pay=pay))
    running = shell.start("run", "pay.dot", "--run-id", "pay")
    latch.wait_reached()
    running.process.kill()
    running.end()
    (left,) = shell.read("pay")["left"]
    assert [effect["key"] for effect in left["effects"]] == ["charge"]
    assert left["assessment"] == "partial"
    assert "effect     charge" in shell.inside("show", "pay").out


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_going_back_to_a_finished_step_that_must_not_be_repeated_is_said(
    shell: Shell, flags: tuple[str, ...]
) -> None:
    """A person's word is enough, but nobody gives it unknowingly."""
    source = pipeline(("pay", "true"), ("b", "false")).replace("pay [", "pay [repeatable=false, ")
    shell.write("work.dot", source)
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 1
    done = shell.inside("resume", "work", "--from", "pay", *flags)
    assert "pay has finished before and is not repeatable; it runs again because of --from" in done.err
    assert "runs again" not in shell.inside("resume", "work", "--from", "b", *flags).err


def test_giving_up_says_what_nobody_knows_and_what_is_still_possible(shell: Shell) -> None:
    killed(shell)
    done = shell.inside("abort", "doubt", "--db", shell.db)
    name = called("doubt")
    assert done.code == 0
    assert done.out.splitlines() == [
        f"cancelling run {name} (doubt)",
        "  stopped   pay#1  attempt 1: cancelled",
        f"run {name} cancelled for good",
        "whether pay#1 finished is unknown; nothing was undone",
        "it cannot be resumed; a fork can continue from its last checkpoint, which runs pay#1 again: "
        f"onward replay {name} --checkpoint 3 --db {shell.db}",
    ]
    refused = shell.inside("resume", "doubt")
    assert "cannot be resumed: cancellation was requested; `onward replay doubt --from STEP`" in refused.err
    assert shell.inside("replay", "doubt", "--checkpoint", "3", "--no-run").code == 0

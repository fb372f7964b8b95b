"""Runs with a workspace, as a person sees them: the real command line, real repositories, real kills."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell, pipeline
from tests.workspace.repository import Repository

BRANCHES = """
digraph both {{
  graph [workspace="repo"]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  node [shape=parallelogram]
  before [tool_command="echo base > note"]
  fan [shape=component{fan}]
  left [tool_command="{left}"]
  right [tool_command="{right}"]
  meet [shape=tripleoctagon]
  after [tool_command="cat story note; ls"]
  start -> before -> fan
  fan -> left -> meet
  fan -> right -> meet
  meet -> after -> exit
}}
"""


class Desk(Shell):
    """A shell beside a repository, with runs in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, str(directory / ".onward/onward.db"))
        self.repository = Repository.make(directory / "repo")

    def tree(self, run_id: str = "run") -> Path:
        return self.directory / ".onward/runs" / run_id / "workspace"

    def line(self, *steps: tuple[str, str], more: str = '  graph [workspace="repo"]\n') -> str:
        return self.write("line.dot", pipeline(*steps, more=more))

    def finished(self, run_id: str = "run") -> dict[str, dict[str, Any]]:
        """The bodies of the finished steps, the last of each."""
        log = [event for event in self.log(run_id) if event["kind"] == "StepFinished"]
        return {event["step"]: event for event in log}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def killed(desk: Desk, *steps: tuple[str, str]) -> None:
    """A run that is killed while its step `hold` stands at the latch."""
    latch = desk.latch("latch")
    held = [(node, command.replace("LATCH", latch.command)) for node, command in steps]
    started = desk.start("run", desk.line(*held), "--run-id", "run")
    latch.wait_reached()
    started.signal(signal.SIGKILL)
    assert started.end().code == -signal.SIGKILL
    (desk.directory / "latch").unlink()
    (desk.directory / "latch").write_text("")  # nothing waits here any more


def test_steps_work_in_a_tree_of_the_runs_own(desk: Desk) -> None:
    done = desk.inside(
        "run", desk.line(("write", "pwd; echo $ONWARD_WORKSPACE; echo new > note")), "--run-id", "run"
    )
    assert done.code == 0, done.err
    said = desk.finished()["write#1"]
    assert said["context"]["tool.output"].split() == [str(desk.tree())] * 2
    assert desk.repository.git("status", "--porcelain") == ""
    assert desk.repository.read("note", said["workspace"]["ref"]) == "new"


def test_after_an_answer_the_next_step_sees_what_the_steps_before_the_gate_wrote(desk: Desk) -> None:
    """B4-6: whoever answers, from whichever process, the run continues in its own tree."""
    source = pipeline(
        ("write", "echo new > note"), ("review", "cat note"), more='  graph [workspace="repo"]\n'
    )
    gate = (
        '  ask [shape=hexagon, label="Go on?"]\n  start -> write -> ask\n  ask -> review [label="[Y] Yes"]\n'
    )
    source = source.replace("  start -> write -> review", f"{gate}  review")
    assert desk("run", desk.write("gate.dot", source), "--run-id", "run").code == 75
    answered = desk("answer", "run", "yes")
    assert answered.code == 0, answered.err
    assert desk.finished()["review#1"]["context"]["tool.output"] == "new"


def test_the_tree_is_removed_at_the_end_and_its_refs_stay(desk: Desk) -> None:
    commit = "echo new > note; git add note; git -c user.name=a -c user.email=a@b commit -qm made"
    assert desk.inside("run", desk.line(("write", commit)), "--run-id", "run").code == 0
    assert not desk.tree().exists()
    assert desk.repository.trees == [str(desk.repository.path)]
    assert desk.repository.read("note", "onward/run") == "new"


def test_where_the_work_is_kept_is_said_at_the_end_and_by_show(desk: Desk) -> None:
    done = desk.inside("run", desk.line(("a", "echo new > made")), "--run-id", "run")
    said = [line for line in done.out.splitlines() if line.startswith("its work: ")]
    assert len(said) == 1
    ref = said[0].rpartition(" ")[2]
    assert desk.repository.git("show", f"{ref}:made") == "new"
    assert f"  work     {said[0].removeprefix('its work: ')}" in desk.inside("show", "run").out.splitlines()


def test_a_tree_that_is_to_be_kept_is_kept(desk: Desk) -> None:
    file = desk.line(("write", "echo new > note"), more="")
    assert desk.inside("run", file, "--run-id", "run", "--workspace", "repo", "--keep-workspace").code == 0
    assert (desk.tree() / "note").read_text() == "new\n"


def test_only_a_step_that_changes_the_tree_records_it(desk: Desk) -> None:
    """O11."""
    steps = ("look", "true"), ("write", "echo 1 > note"), ("again", "true")
    assert desk.inside("run", desk.line(*steps), "--run-id", "run").code == 0
    assert [step for step, body in desk.finished().items() if "workspace" in body] == ["write#1"]
    assert desk.read("run")["workspace"]["ref"] == desk.finished()["write#1"]["workspace"]["ref"]


def test_killed_inside_a_step_the_run_goes_on_in_the_same_tree_as_it_is(desk: Desk) -> None:
    """O9: the branch and the tree are there already, and are used again."""
    killed(
        desk, ("write", "echo 1 > note"), ("hold", "pwd; echo $ONWARD_WORKSPACE; echo half >> note; LATCH")
    )
    assert (desk.tree() / "note").read_text() == "1\nhalf\n"
    done = desk.inside("resume", "run", "--original")
    assert done.code == 0, done.err
    assert desk.finished()["hold#1"]["context"]["tool.output"].split() == [str(desk.tree())] * 2
    assert desk.repository.read("note", desk.finished()["hold#1"]["workspace"]["ref"]) == "1\nhalf\nhalf"


def test_a_restore_goes_back_to_the_last_checkpoint_and_keeps_what_was_there(desk: Desk) -> None:
    """O11: the last checkpoint changed nothing, so the state of the one before it counts."""
    killed(desk, ("write", "echo 1 > note"), ("look", "true"), ("hold", "echo half >> note; touch x; LATCH"))
    done = desk.inside("resume", "run", "--original", "--restore-workspace")
    assert done.code == 0, done.err
    assert desk.repository.read("note", desk.finished()["hold#1"]["workspace"]["ref"]) == "1\nhalf"
    saved = done.err.partition("is kept as ")[2].split(".")[0].strip()
    assert desk.repository.read("note", saved) == "1\nhalf"
    assert desk.repository.read("x", saved) == ""


def test_a_restore_that_fails_stops_the_run_before_anything_is_executed(desk: Desk) -> None:
    """O12: the run never goes on in a tree that is not the recorded one."""
    killed(desk, ("write", "echo 1 > note"), ("hold", desk.noting("LATCH")))
    ref = desk.finished()["write#1"]["workspace"]["ref"]
    desk.repository.git("update-ref", "-d", ref)
    desk.repository.git("reflog", "expire", "--expire=now", "--all")
    desk.repository.git("-c", "gc.pruneExpire=now", "gc", "-q", "--prune=now")
    done = desk.inside("resume", "run", "--original", "--restore-workspace")
    assert done.code == 1
    run = desk.read("run")
    assert (run["status"], run["reason"]) == ("failed", "pipeline_error")
    assert "is no longer in the repository" in run["detail"]
    assert desk.ledger == ["hold#1"]
    assert desk.inside("resume", "run", "--original").code == 0  # as it is, if a person says so


def test_killed_between_steps_and_without_its_tree_the_run_has_it_again(desk: Desk) -> None:
    killed(desk, ("write", "echo 1 > note"), ("hold", "LATCH; cat note"))
    for path in sorted(desk.tree().rglob("*"), reverse=True):
        path.unlink()
    desk.tree().joinpath(".git").unlink(missing_ok=True)
    desk.tree().rmdir()
    assert desk.inside("resume", "run", "--original").code == 0
    assert desk.finished()["hold#1"]["context"]["tool.output"] == "1"


def test_a_fork_begins_with_the_checkpoints_state_in_a_tree_of_its_own(desk: Desk) -> None:
    steps = ("one", "echo 1 > note"), ("two", "echo 2 >> note"), ("three", "cat note; pwd")
    assert desk.inside("run", desk.line(*steps), "--run-id", "run").code == 0
    checkpoint = next(
        event["seq"]
        for event in desk.log("run")
        if event["kind"] == "StepFinished" and event["step"] == "one#1"
    )
    assert desk.inside("replay", "run", "--checkpoint", str(checkpoint), "--run-id", "fork").code == 0
    said = desk.finished("fork")["three#1"]["context"]["tool.output"]
    assert said.split() == ["1", "2", str(desk.tree("fork"))]


def test_in_place_steps_change_the_repository_itself_and_nobody_else_may(desk: Desk) -> None:
    file = desk.line(
        ("write", "echo new > note"), more='  graph [workspace="repo", workspace_mode=in_place]\n'
    )
    (desk.repository.path / "mine").write_text("before")
    assert desk.inside("run", file, "--run-id", "run").code == 0
    assert (desk.repository.path / "note").read_text() == "new\n"
    run = desk.read("run")
    assert run["exclusive_key"] == str(desk.repository.path)
    assert desk.repository.git("status", "--porcelain").split() == ["??", "mine", "??", "note"]
    assert desk.repository.read("mine", run["workspace"]["ref"]) == "before"
    assert desk.inside("replay", "run", "--checkpoint", "1", "--run-id", "fork").code == 0
    assert desk.repository.read("mine", desk.read("fork")["workspace"]["ref"]) == "before"


def test_a_workspace_that_cannot_be_used_is_refused_before_there_is_a_run(desk: Desk) -> None:
    file = desk.line(("write", "true"), more="")
    (desk.directory / "plain").mkdir()
    for where, why in {"plain": "is not in a git repository", "nowhere": "is not a directory"}.items():
        done = desk.inside("run", file, "--run-id", "run", "--workspace", where)
        assert (done.code, why in done.err) == (2, True), done.err
    desk.repository.git("branch", "onward/run")
    done = desk.inside("submit", file, "--run-id", "run", "--workspace", "repo")
    assert (done.code, "already has a branch onward/run" in done.err) == (2, True), done.err
    assert desk.inside("status", "--json").json == []


def test_a_workspace_that_is_gone_stops_the_run_before_its_first_step(desk: Desk) -> None:
    """O12."""
    assert desk.inside("submit", desk.line(("write", desk.noting())), "--run-id", "run").code == 0
    desk.repository.path.rename(desk.directory / "moved")
    desk.inside("worker", "--until-idle")
    run = desk.read("run")
    assert (run["status"], run["reason"], desk.ledger) == ("failed", "pipeline_error", [])
    (desk.directory / "moved").rename(desk.repository.path)
    assert desk.inside("resume", "run").code == 0
    assert desk.ledger == ["write#1"]


def test_branches_work_apart_and_their_work_is_merged(desk: Desk) -> None:
    left, right = "echo left >> note; test ! -e right", "echo right > right; test $(cat note) = base"
    file = desk.write("both.dot", BRANCHES.format(fan="", left=left, right=right))
    done = desk.inside("run", file, "--run-id", "run")
    assert done.code == 0
    said = desk.finished()["after#1"]["context"]["tool.output"]
    assert said.split() == ["once", "base", "left", "note", "right", "story"]
    assert "workspace.conflicts" not in desk.read("run")["context"]
    assert "  conflict" not in done.out
    assert desk.repository.trees == [str(desk.repository.path)]


def test_a_conflict_is_told_and_leaves_the_last_clean_merge(desk: Desk) -> None:
    file = desk.write(
        "both.dot", BRANCHES.format(fan="", left="echo left > story", right="echo right > story")
    )
    done = desk.inside("run", file, "--run-id", "run")
    assert done.code == 0
    assert desk.finished()["after#1"]["context"]["tool.output"].split()[0] == "left"
    fan = desk.finished()["fan#1"]
    assert fan["context"]["workspace.conflicts"] == [{"branch": "right", "files": ["story"]}]
    assert fan["outcome"]["status"] == "partial_success"
    right = desk.finished()["fan#1.right/right#1"]["workspace"]["ref"]
    assert desk.repository.read("story", right) == "right"
    kept = f"{right} in {desk.repository.path}"
    assert [line for line in done.out.splitlines() if line.startswith("  conflict")] == [
        f"  conflict  fan#1  branch right was not merged (conflict in story); its work is kept as {kept}"
    ]


def test_branches_that_share_work_in_the_runs_tree(desk: Desk) -> None:
    file = desk.write(
        "both.dot",
        BRANCHES.format(fan=", workspace=shared, max_parallel=1", left="echo left > x", right="cat x; pwd"),
    )
    assert desk.inside("run", file, "--run-id", "run").code == 0
    assert desk.finished()["fan#1.right/right#1"]["context"]["tool.output"].split() == [
        "left",
        str(desk.tree()),
    ]


def test_a_kill_inside_a_branch_repeats_only_that_branch(desk: Desk) -> None:
    latch = desk.latch("latch")
    file = desk.write(
        "both.dot",
        BRANCHES.format(fan="", left=desk.noting("echo l > l"), right=f"echo r >> r; {latch.command}"),
    )
    started = desk.start("run", file, "--run-id", "run")
    latch.wait_reached()
    started.wait_for("finished +fan#1.left/left#1")
    started.signal(signal.SIGKILL)
    started.end()
    (desk.directory / "latch").unlink()
    (desk.directory / "latch").write_text("")
    assert desk.inside("resume", "run", "--original").code == 0
    assert desk.ledger == ["fan#1.left/left#1"]
    assert desk.finished()["after#1"]["context"]["tool.output"].split()[2:] == ["l", "note", "r", "story"]


def test_a_run_that_is_cancelled_leaves_no_tree_and_loses_nothing(desk: Desk) -> None:
    killed(desk, ("write", "echo 1 > note"), ("hold", "echo half >> note; LATCH"))
    assert desk.inside("cancel", "run").code == 0
    assert not desk.tree().exists()
    (saved,) = [ref for ref in desk.repository.refs if "/saved-" in ref]
    assert desk.repository.read("note", saved) == "1\nhalf"


def test_a_run_that_is_cancelled_among_its_branches_leaves_no_tree(desk: Desk) -> None:
    latch = desk.latch("latch")
    file = desk.write("both.dot", BRANCHES.format(fan="", left="true", right=f"echo r > r; {latch.command}"))
    started = desk.start("run", file, "--run-id", "run")
    latch.wait_reached()
    started.wait_for("finished +fan#1.left/left#1")
    started.signal(signal.SIGKILL)
    started.end()
    assert desk.inside("cancel", "run").code == 0
    assert desk.repository.trees == [str(desk.repository.path)]
    assert [desk.repository.read("r", ref) for ref in desk.repository.refs if "/saved-" in ref] == ["r"]


def test_a_run_without_a_workspace_never_calls_git(desk: Desk) -> None:
    bin = desk.directory / "bin"
    bin.mkdir()
    (bin / "git").write_text(f"#!/bin/sh\ntouch {desk.directory}/called\n")
    (bin / "git").chmod(0o755)
    desk.environment["PATH"] = f"{bin}:{desk.environment['PATH']}"
    assert desk.inside("run", desk.line(("write", "true"), more=""), "--run-id", "run").code == 0
    assert not (desk.directory / "called").exists()


def test_a_restart_goes_on_with_the_files_of_the_run_before(desk: Desk) -> None:
    body = """
digraph again {
  graph [workspace="repo"]
  start [shape=Mdiamond]; exit [shape=Msquare]
  node [shape=parallelogram]
  write [tool_command="echo more >> note; wc -l < note"]
  start -> write
  write -> write [condition="context.tool.output!=2", loop_restart=true]
  write -> exit [condition="context.tool.output=2"]
}
"""
    done = desk.inside(
        "run", desk.write("again.dot", body.replace("wc -l < note", "printf $(wc -l < note)")), "--json"
    )
    assert done.code == 0, done.err
    (newest, _) = desk.inside("status", "--json").json
    assert desk.repository.read("note", desk.read(newest["id"])["workspace"]["ref"]) == "more\nmore"


@pytest.mark.parametrize("target", ["repo", "elsewhere"])
def test_a_step_that_puts_a_link_in_the_place_of_its_tree_leads_nobody_away(desk: Desk, target: str) -> None:
    (desk.directory / "elsewhere").mkdir(exist_ok=True)
    (desk.directory / "elsewhere/kept").write_text("mine")
    before = desk.repository.git("rev-parse", "HEAD")
    swap = f"mv {desk.tree()} {desk.directory}/aside; ln -s {desk.directory}/{target} {desk.tree()}"
    done = desk.inside("run", desk.line(("swap", swap)), "--run-id", "run")
    assert (desk.directory / "elsewhere/kept").read_text() == "mine"
    assert desk.repository.git("rev-parse", "HEAD") == before
    assert (desk.repository.path / "story").read_text() == "once\n"
    assert done.code == 1
    assert "links are not followed" in done.out + done.err

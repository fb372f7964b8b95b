"""What the command line says of a run that did not reach the exit."""

from __future__ import annotations

from tests.cli.shell import Shell

STUCK = """digraph stuck {{
  start [shape=Mdiamond]
  exit [shape=Msquare]
  a [shape=parallelogram, tool_command="{a}"]
  b [shape=parallelogram, tool_command="{b}"]
  start -> a
  a -> b [condition="context.flag=on"]
  b -> exit
}}
"""
WHY = (
    "step a#1 finished as success, and its only edge cannot be taken: a -> b needs context.flag=on. It found "
    "context.flag (not set)."
)
DEAD = """digraph dead {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  a [shape=parallelogram, tool_command="true"]
  start -> a
  start -> exit [condition="outcome=fail"]
}
"""
ENDED = "ended at a, which has no outgoing edges and is not the exit"


def stuck(shell: Shell, condition: str = "context.flag=on") -> None:
    """The pipeline, with another condition on its edge."""
    source = STUCK.format(a=shell.noting(), b=shell.noting())
    shell.write("stuck.dot", source.replace("context.flag=on", condition))


def test_a_run_without_a_way_on_fails_with_what_every_edge_needs(shell: Shell) -> None:
    """I38."""
    stuck(shell)
    done = shell.inside("run", "stuck.dot", "--run-id", "work")
    assert done.code == 1
    assert f"failed (no_way_on): {WHY}" in done.out
    assert "--accept-changes|--retry|--from NODE" in done.out.splitlines()[-1]


def test_status_and_show_say_why_there_is_no_way_on(shell: Shell) -> None:
    stuck(shell)
    assert shell.inside("run", "stuck.dot", "--run-id", "work", "--json").json["reason"] == "no_way_on"
    for command in ("status", "show"):
        assert f"failed (no_way_on): {WHY}" in shell.inside(command, "work").out
        view = shell.inside(command, "work", "--json").json
        assert (view["status"], view["reason"], view["recoverable"]) == ("failed", "no_way_on", True)
        assert (view["detail"], view["ended_at_node"]) == (WHY, None)


def test_a_resume_without_a_way_on_is_refused_in_one_sentence(shell: Shell) -> None:
    stuck(shell)
    shell.inside("run", "stuck.dot", "--run-id", "work")
    for how in ((), ("--dry-run",), ("--skip",)):
        refused = shell.inside("resume", "work", *how)
        assert refused.code == 1
        assert len(refused.err.splitlines()) == 1
        assert "resume with --accept-changes" in refused.err
    assert shell.inside("resume", "work", "--json").error["code"] == "no_way_on"


def test_a_corrected_edge_is_taken_without_executing_the_step_again(shell: Shell) -> None:
    stuck(shell)
    shell.inside("run", "stuck.dot", "--run-id", "work")
    stuck(shell, "outcome=success")
    ahead = shell.inside("resume", "work", "--accept-changes", "--dry-run")
    assert "TAKE  a#1  (the edge to b)" in ahead.out
    done = shell.inside("resume", "work", "--accept-changes")
    assert done.code == 0
    assert "routed    a#1  to b" in done.out
    assert shell.ledger == ["a#1", "b#1"]


def test_a_run_that_ended_at_a_dead_end_says_so_wherever_it_is_shown(shell: Shell) -> None:
    shell.write("dead.dot", DEAD)
    done = shell.inside("run", "dead.dot", "--run-id", "dead")
    assert done.code == 0
    assert "dead.dot:4:3: warning [dead_end]" in done.err
    assert f"; {ENDED}" in done.out
    for command in ("status", "show"):
        assert f"completed (dead_end): {ENDED}" in shell.inside(command, "dead").out
        view = shell.inside(command, "dead", "--json").json
        assert (view["status"], view["ended_at_node"]) == ("completed", "a")
    (listed,) = shell.inside("status", "--json").json
    assert listed["ended_at_node"] == "a"

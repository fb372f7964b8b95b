"""`onward calls`, seen from outside."""

from __future__ import annotations

from tests.cli.shell import Shell, pipeline


def test_a_step_without_recorded_calls_is_refused_by_its_name(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot", "--run-id", "ok").code == 0
    assert "has no recorded calls" in shell.inside("calls", "ok").out
    done = shell.inside("calls", "ok", "--step", "nope")
    assert done.code == 1
    assert "no step 'nope' of this run has recorded calls; steps that have: none." in done.err

"""retry, skip and abort: words of their own for what resume does to the step that a run stopped in."""

from __future__ import annotations

from pathlib import Path

from tests.cli.shell import GATE, Shell, pipeline


def failed(shell: Shell) -> None:
    """A run that stopped in its first step, which works once a file is there."""
    shell.write("work.dot", pipeline(("a", "test -e ready"), ("b", "printf b")))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 1


def test_retry_makes_the_failed_step_again_and_goes_on(shell: Shell) -> None:
    failed(shell)
    assert shell.inside("retry", "work").code == 1
    shell.write("ready", "")
    assert shell.inside("retry", "work").code == 0
    assert shell.read("work")["completed"] == ["start#1", "a#1", "b#1", "exit#1"]


def test_skip_goes_on_behind_the_failed_step(shell: Shell) -> None:
    failed(shell)
    assert shell.inside("skip", "work").code == 0
    found = [e["outcome"]["status"] for e in shell.log("work") if e["kind"] == "StepFinished"]
    assert found == ["success", "skipped", "success", "success"]


def test_abort_gives_the_run_up(shell: Shell) -> None:
    failed(shell)
    shell.inside("abort", "work")
    assert shell.read("work")["status"] == "cancelled"
    refused = shell.inside("retry", "work")
    assert refused.code == 1
    assert "cannot be resumed" in refused.err


def test_a_step_that_is_not_stopped_is_refused(shell: Shell) -> None:
    failed(shell)
    refused = shell.inside("retry", "work", "--step", "b")
    assert refused.code == 1
    assert "no unfinished step" in refused.err


def test_an_effect_is_performed_once_for_its_key(shell: Shell) -> None:
    command = ("effect", "charge-7", "--", "sh", "-c", "echo once >> ledger; echo done")
    first, second = shell.inside(*command), shell.inside(*command)
    assert (first.code, second.code) == (0, 0)
    assert first.out == second.out == "done\n"
    assert Path(shell.directory, "ledger").read_text() == "once\n"


def test_a_failed_effect_is_remembered_unless_only_success_is(shell: Shell) -> None:
    assert shell.inside("effect", "k", "--", "sh", "-c", "exit 3").code == 3
    assert shell.inside("effect", "k", "--", "true").code == 3
    assert shell.inside("effect", "other", "--only-success", "--", "sh", "-c", "exit 3").code == 3
    assert shell.inside("effect", "other", "--only-success", "--", "true").code == 0


def test_the_tokens_behind_two_dashes_are_the_commands_own(shell: Shell) -> None:
    done = shell.inside("effect", "k", "--", "echo", "--json")
    assert (done.code, done.out) == (0, "--json\n")


def test_abort_gives_up_a_run_that_waits_for_an_answer(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", "work").code == 75
    assert shell.inside("abort", "work").code == 0
    assert shell.read("work")["status"] == "cancelled"


def test_a_run_that_is_over_is_not_given_up_and_the_refusal_says_what_is_possible(shell: Shell) -> None:
    shell.write("work.dot", pipeline(("a", "true")))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 0
    refused = shell.inside("abort", "work")
    assert refused.code == 1
    assert refused.err == (
        "onward: run work is completed and cannot be cancelled: it has finished; "
        "`onward replay work --from STEP` repeats it from a step, in a fork.\n"
    )


def test_a_dismissed_run_says_so_and_can_still_be_resumed_by_name(shell: Shell) -> None:
    """B0-2: dismissing is stored, and shown wherever the run is."""
    failed(shell)
    dismissed = shell.inside("dismiss", "work")
    assert (dismissed.code, "onward resume work still continues it" in dismissed.out) == (0, True)
    assert "failed (step_failed), dismissed" in shell.inside("status").out
    assert "failed (step_failed), dismissed" in shell.inside("show", "work").out
    assert shell.inside("status", "work", "--json").json["is_dismissed"]
    shell.write("ready", "")
    assert shell.inside("resume", "work").code == 0
    assert not shell.inside("status", "work", "--json").json["is_dismissed"]
    refused = shell.inside("dismiss", "work", "--json")
    assert (refused.code, refused.error["code"]) == (1, "invalid_state")

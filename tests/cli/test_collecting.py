"""`onward gc` as people type it."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell, pipeline


def two_runs(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "true")))
    for run_id in ("one", "two"):
        assert shell.inside("run", "line.dot", "--run-id", run_id).code == 0


def test_old_runs_go_with_their_directories_and_the_rest_stays_sound(shell: Shell) -> None:
    """S2-31."""
    two_runs(shell)
    assert shell.inside("gc").out.startswith("deleted 0 runs")
    planned = shell.inside("gc", "--keep", "1", "--dry-run", "--json").json
    assert (planned["dry_run"], planned["runs"]) == (True, ["one"])
    done = shell.inside("gc", "--keep", "1", "--json").json
    assert (done["runs"], done["directories"], done["needed"]) == (["one"], 1, 0)
    assert shell.inside("show", "one").code == 1
    assert shell.inside("resume", "one").code == 1
    assert shell.inside("verify").code == 0
    assert shell.read("two")["status"] == "completed"


def test_a_run_that_a_replay_came_off_is_kept_and_said_to_be(shell: Shell) -> None:
    two_runs(shell)
    assert shell.inside("replay", "one", "--checkpoint", "1").code == 0
    done = shell.inside("gc", "--keep", "1")
    assert "deleted 1 run " in done.out
    assert "1 run old enough, and kept because others need them" in done.out
    assert shell.inside("verify").code == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--status", "running"), "cannot be collected, only completed, cancelled, failed"),
        (("--older-than", "soon"), "a whole number with its unit"),
        (("--keep", "-1"), "not a whole number from 0"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    shell: Shell, flags: tuple[str, ...], said: str
) -> None:
    done = shell.inside("gc", *flags)
    assert done.code == 2
    assert said in done.err

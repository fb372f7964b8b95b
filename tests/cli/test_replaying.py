"""`onward replay` of a pipeline that was edited, and before a step."""

from __future__ import annotations

from tests.cli.shell import Shell, pipeline


def finished(shell: Shell) -> None:
    """A run whose second step printed the wrong word."""
    shell.write("work.dot", pipeline(("a", shell.noting("printf one")), ("b", shell.noting("printf wrong"))))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 0


def edit(shell: Shell) -> None:
    shell.write("work.dot", pipeline(("a", shell.noting("printf one")), ("b", shell.noting("printf right"))))


def test_a_corrected_step_is_run_again_from_before_it_by_one_command(shell: Shell) -> None:
    finished(shell)
    edit(shell)
    done = shell.inside("replay", "work", "--from", "b", "--accept-changes", "--run-id", "fork")
    assert done.code == 0, done.err
    assert shell.ledger == ["a#1", "b#1", "b#1"]
    assert shell.read("fork")["context"]["tool.output"] == "right"
    assert shell.read("work")["context"]["tool.output"] == "wrong"
    assert [e["kind"] for e in shell.log("fork")].count("PipelineChanged") == 1


def test_a_replay_of_an_edited_file_is_refused_until_a_person_chooses(shell: Shell) -> None:
    finished(shell)
    edit(shell)
    refused = shell.inside("replay", "work", "--checkpoint", "1", "--json")
    assert (refused.code, refused.error["code"]) == (1, "pipeline_changed")
    assert refused.error["changed"] == ["b"]
    assert "replay with --accept-changes, or with --original" in refused.error["message"]
    assert shell.read("work")["forks"] == []
    assert shell.inside("replay", "work", "--from", "b", "--original", "--run-id", "fork").code == 0
    assert shell.read("fork")["context"]["tool.output"] == "wrong"


def test_a_replay_of_a_file_that_is_gone_says_so(shell: Shell) -> None:
    finished(shell)
    (shell.directory / "work.dot").unlink()
    done = shell.inside("replay", "work", "--from", "b", "--no-run", "--json")
    assert done.code == 0
    assert "no longer exists; continuing with the source stored with the run" in done.json["notice"]
    assert "no longer exists; continuing with the source stored with the run" in done.err


def test_a_replay_that_names_no_place_is_told_the_checkpoints(shell: Shell) -> None:
    finished(shell)
    refused = shell.inside("replay", "work")
    assert refused.code == 2
    assert (
        "name the point where the fork of run work starts: --from STEP, or --checkpoint SEQ;" in refused.err
    )
    assert "(after a#1)" in refused.err


def test_flags_of_a_replay_that_contradict_each_other_are_refused(shell: Shell) -> None:
    for flags in (("--checkpoint", "1", "--from", "b"), ("--accept-changes", "--original")):
        refused = shell.inside("replay", "work", *flags)
        assert refused.code == 2
        assert "contradict each other; give one" in refused.err

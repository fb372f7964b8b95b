"""Where the commands of a run work: the directory is part of the run, wherever it is resumed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.shell import Shell, pipeline

PWD = "pwd >> $HOME/places"
STOPS_ONCE = "test -e $HOME/fixed"
GATE = """
digraph gate {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  ask [shape=hexagon, label="Go on?"]
  work [shape=parallelogram, tool_command="pwd >> $HOME/places"]
  start -> ask
  ask -> work [label="[Y] Yes"]
  work -> exit
}
"""


def inside(shell: Shell, place: Path, *words: str) -> tuple[int, str]:
    """Run a command in another directory; its exit code and all that it printed."""
    place.mkdir(exist_ok=True)
    shell.directory = place
    done = shell.inside(*words)
    return done.code, done.out + done.err


def places(shell: Shell) -> list[str]:
    path = Path(shell.environment["HOME"], "places")
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def stopped(shell: Shell) -> Path:
    """A run that noted its directory `first` and then failed, which it does until `fixed` exists."""
    home = shell.directory
    shell.write("line.dot", pipeline(("a", PWD), ("b", f"{PWD}; {STOPS_ONCE}")))
    code, said = inside(shell, home / "first", "run", "../line.dot", "--run-id", "one")
    assert code == 1, said
    (home / "fixed").touch()
    shell.directory = home
    return home


def test_a_run_works_where_it_was_started_wherever_it_is_resumed(shell: Shell, stopped: Path) -> None:
    code, said = inside(shell, stopped / "elsewhere", "resume", "one")
    assert (code, places(shell)) == (0, [str(stopped / "first")] * 3), said
    assert f"its commands run in {stopped / 'first'}" in said
    assert shell.read("one")["workdir"] == str(stopped / "first")


def test_run_takes_another_directory(shell: Shell) -> None:
    home = shell.directory
    (home / "there").mkdir()
    shell.write("line.dot", pipeline(("a", PWD)))
    assert shell.inside("run", "line.dot", "--cwd", "there").code == 0
    assert places(shell) == [str(home / "there")]


@pytest.mark.parametrize("command", ["resume", "retry"])
def test_a_resume_can_move_a_run_for_good(shell: Shell, stopped: Path, command: str) -> None:
    (stopped / "second").mkdir()
    shell.write("line.dot", pipeline(("a", PWD), ("b", f"{PWD}; {STOPS_ONCE}"), ("c", PWD)))
    code, said = inside(shell, stopped, command, "one", "--original", "--cwd", "second")
    assert (code, places(shell)[-1]) == (0, str(stopped / "second")), said
    assert shell.read("one")["workdir"] == str(stopped / "second")
    (moved,) = [event for event in shell.log("one") if event["kind"] == "WorkdirChanged"]
    assert (moved["before"], moved["workdir"]) == (str(stopped / "first"), str(stopped / "second"))


def test_a_directory_that_is_gone_is_said_before_anything_happens(shell: Shell, stopped: Path) -> None:
    (stopped / "first").rename(stopped / "moved")
    before = len(shell.log("one"))
    code, said = inside(shell, stopped, "resume", "one")
    assert code == 1
    assert f"works in {stopped / 'first'}, which does not exist" in said
    assert "onward resume one --cwd DIR" in said
    assert len(shell.log("one")) == before
    assert inside(shell, stopped, "resume", "one", "--cwd", "moved")[0] == 0
    assert places(shell)[-1] == str(stopped / "moved")


@pytest.mark.parametrize("words", [("run", "line.dot"), ("resume", "one")])
@pytest.mark.parametrize("wrong", ["nowhere", "line.dot", ""])
def test_a_wrong_directory_is_refused(
    shell: Shell, stopped: Path, words: tuple[str, ...], wrong: str
) -> None:
    before = len(shell.log("one"))
    code, said = inside(shell, stopped, *words, "--cwd", wrong)
    assert (code, said.count("\n")) == (2, 1), said
    assert "--cwd" in said
    assert len(shell.log("one")) == before


def test_an_answer_is_not_taken_when_the_run_could_not_continue(shell: Shell) -> None:
    home = shell.directory
    shell.write("gate.dot", GATE)
    assert inside(shell, home / "first", "run", "../gate.dot", "--run-id", "one")[0] == 75
    (home / "first").rename(home / "moved")
    code, said = inside(shell, home, "answer", "one", "yes")
    assert code == 1, said
    assert "onward resume one --cwd DIR" in said
    code, said = inside(shell, home, "resume", "one", "--cwd", "moved")
    assert code == 75, said
    assert inside(shell, home, "answer", "one", "yes")[0] == 0
    assert places(shell) == [str(home / "moved")]


def test_a_resume_that_only_moves_a_waiting_run_may_ask_its_question(shell: Shell) -> None:
    home = shell.directory
    shell.write("gate.dot", GATE)
    assert inside(shell, home, "run", "gate.dot", "--run-id", "one")[0] == 75
    (home / "other").mkdir()
    assert inside(shell, home, "resume", "one", "--cwd", "other", "--answers", "auto")[0] == 0
    assert places(shell) == [str(home / "other")]


def test_a_submitted_run_works_where_its_worker_does(shell: Shell) -> None:
    home = shell.directory
    shell.write("line.dot", pipeline(("a", PWD)))
    assert shell.inside("submit", "line.dot", "--run-id", "one").code == 0
    assert shell.read("one")["workdir"] is None
    assert inside(shell, home / "worker", "worker", "--until-idle")[0] == 0
    assert places(shell) == [str(home / "worker")]


def test_a_submitted_run_with_a_directory_waits_for_a_worker_that_has_it(any_shell: Shell) -> None:
    shell, home = any_shell, any_shell.directory
    shell.write("line.dot", pipeline(("a", PWD)))
    done = shell.inside("submit", "line.dot", "--run-id", "one", "--cwd", "its own place")
    assert done.code == 0
    assert f"the directory {home / 'its own place'} does not exist on this machine" in done.err
    assert shell.inside("worker", "--until-idle").code == 0
    assert shell.read("one")["status"] == "queued"
    (home / "its own place").mkdir()
    assert shell.inside("worker", "--until-idle").code == 0
    assert shell.read("one")["status"] == "completed"
    assert places(shell) == [str(home / "its own place")]


def test_a_queued_resume_keeps_the_directory_a_need(shell: Shell, stopped: Path) -> None:
    (stopped / "first").rename(stopped / "moved")
    assert inside(shell, stopped, "resume", "one", "--queue")[0] == 0
    assert inside(shell, stopped, "worker", "--until-idle")[0] == 0
    assert shell.read("one")["status"] == "queued"
    assert inside(shell, stopped, "resume", "one", "--queue", "--cwd", "moved")[0] == 0
    assert inside(shell, stopped, "worker", "--until-idle")[0] == 0
    assert (shell.read("one")["status"], places(shell)[-1]) == ("completed", str(stopped / "moved"))


def test_a_fork_works_where_its_parent_did(shell: Shell, stopped: Path) -> None:
    code, said = inside(shell, stopped, "replay", "one", "--checkpoint", "1")
    assert (code, set(places(shell))) == (0, {str(stopped / "first")}), said


def test_hooks_work_where_the_run_does(shell: Shell) -> None:
    home = shell.directory
    (home / "there").mkdir()
    shell.write("line.dot", pipeline(("a", "true"), more=f'  graph [tool_hooks.pre="{PWD}"]\n'))
    assert shell.inside("run", "line.dot", "--cwd", "there").code == 0
    assert places(shell) == [str(home / "there")]


def test_the_names_of_passed_variables_are_recorded_and_their_values_never(shell: Shell) -> None:
    shell.environment["DEPLOY_KEY"] = "hush-hush"
    shell.write("onward.toml", 'tool_env = ["DEPLOY_*"]\n')
    shell.write("line.dot", pipeline(("a", STOPS_ONCE)))
    assert shell.inside("run", "line.dot", "--run-id", "one").code == 1
    shown = shell.read("one")
    assert {"DEPLOY_KEY", "HOME", "PATH"} <= set(shown["variables"])
    assert "ONWARD_RUN_ID" not in shown["variables"]
    assert "hush-hush" not in str(shell.log("one"))


def test_a_resume_says_which_variables_are_missing_now(shell: Shell) -> None:
    shell.environment |= {"DEPLOY_KEY": "hush-hush", "TERM": "xterm"}
    shell.write("onward.toml", 'tool_env = ["DEPLOY_*"]\n')
    shell.write("line.dot", pipeline(("a", "test $DEPLOY_KEY = $AGAIN")))
    assert shell.inside("run", "line.dot", "--run-id", "one").code == 1
    said = shell.inside("resume", "one").err
    assert "do not get now" not in said
    del shell.environment["DEPLOY_KEY"], shell.environment["TERM"]
    said = shell.inside("resume", "one").err
    assert "received DEPLOY_KEY when the run was started, and would not receive it now" in said
    assert "TERM" not in said


def test_show_says_where_a_run_works(shell: Shell, stopped: Path) -> None:
    assert f"  cwd      {stopped / 'first'}\n" in shell.inside("show", "one").out
    assert os.path.isabs(shell.read("one")["workdir"])


# -- variables -----------------------------------------------------------------------------------------


def test_a_variable_that_a_command_does_not_get_is_a_warning_before_it_is_missed(shell: Shell) -> None:
    shell.environment["TOKEN"] = "t"
    shell.write("line.dot", pipeline(("a", "deploy $TOKEN $STAGE $EXTRA_1")))
    shell.environment |= {"EXTRA_1": "1", "ONWARD_TOOL_ENV": "EXTRA_*, OTHER"}
    for words in (("validate", "line.dot"), ("run", "line.dot")):
        done = shell.inside(*words)
        said = [line for line in (done.out + done.err).splitlines() if "[tool_variable]" in line]
        assert len(said) == 2, done
        assert (
            'uses $TOKEN, which commands do not receive (write tool_env = ["TOKEN"] in onward.toml)'
            in said[0]
        )
        assert "uses $STAGE, which is not set here" in said[1]


def test_submit_does_not_judge_the_environment_of_a_worker(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "deploy $STAGE")))
    assert shell.inside("submit", "line.dot").err == "no worker is running; start one with `onward worker`\n"


def test_a_pattern_passes_variables_on(shell: Shell) -> None:
    shell.environment |= {"AWS_REGION": "eu", "AWSKEY": "hush"}
    shell.write("onward.toml", 'tool_env = ["AWS_*"]\n')
    shell.write("line.dot", pipeline(("a", "echo ${AWS_REGION-no} ${AWSKEY-no} > seen")))
    assert shell.inside("run", "line.dot").code == 0
    assert (shell.directory / "seen").read_text() == "eu no\n"


@pytest.mark.parametrize("wrong", ['"AWS_*"', '["A B"]', '["A=1"]', '["$A"]', "[1]", '[""]'])
def test_a_wrong_pattern_is_told(shell: Shell, wrong: str) -> None:
    shell.write("onward.toml", f"tool_env = {wrong}\n")
    done = shell.inside("status")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "tool_env in onward.toml" in done.err


def test_a_refused_resume_says_nothing_of_the_directory(shell: Shell) -> None:
    (shell.directory / "there").mkdir()
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot", "--run-id", "done", "--cwd", "there").code == 0
    refused = shell.inside("resume", "done")
    assert (refused.code, refused.out) == (1, "")

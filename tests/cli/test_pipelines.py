"""Registered pipelines at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell, pipeline

FIRST, SECOND = pipeline(("a", "echo one"), name="site"), pipeline(("a", "echo two"), name="site")


def added(shell: Shell, source: str = FIRST, *flags: str) -> str:
    shell.write("site.dot", source)
    done = shell.inside("pipelines", "add", "site.dot", *flags)
    assert done.code == 0, done.err
    return done.out


def test_a_pipeline_is_added_and_run_by_its_name_without_its_file(any_shell: Shell) -> None:
    shell = any_shell
    assert added(shell) == "site@1 is added; new runs of site get version 1\n"
    assert added(shell) == "site@1 is already stored; new runs of site get version 1\n"
    assert added(shell, SECOND) == "site@2 is added; new runs of site get version 2\n"
    (shell.directory / "site.dot").unlink()
    assert shell.inside("run", "site", "--run-id", "newest").code == 0
    assert shell.inside("run", "site@1", "--run-id", "oldest").code == 0
    told = {run: shell.read(run) for run in ("newest", "oldest")}
    assert {run: one["pipeline_version"] for run, one in told.items()} == {"newest": 2, "oldest": 1}
    assert told["oldest"]["context"]["tool.output"] == "one"
    assert "version  site@1 (" in shell.inside("show", "oldest").out
    assert shell.inside("verify").code == 0


def test_a_version_is_enabled_shown_and_a_name_removed(any_shell: Shell) -> None:
    shell = any_shell
    added(shell)
    added(shell, SECOND, "--by", "ann")
    assert shell.inside("pipelines", "enable", "site", "1", "--by", "bob").out == (
        "new runs of site get version 1\n"
    )
    listed = shell.inside("pipelines").out
    assert listed.splitlines()[1].split()[:4] == ["site", "1", "2", "bob"]
    shown = shell.inside("pipelines", "show", "site").out
    assert "echo one" in shown
    assert "echo two" not in shown
    assert "echo two" in shell.inside("pipelines", "show", "site", "--version", "2").out
    page = shell.inside("pipelines", "show", "site@2", "--json").json
    assert (page["source"], page["version"], page["enabled"]) == (SECOND, 2, 1)
    assert [one["added_by"] for one in page["versions"]][:1] == ["ann"]
    assert page["versions"][0]["file"] == str(shell.directory / "site.dot")
    assert shell.inside("pipelines", "remove", "site").out == "site was removed; its runs keep their source\n"
    assert shell.inside("run", "site").code == 2
    assert "no pipeline is registered" in shell.inside("pipelines").out


def test_many_runs_are_submitted_by_a_name(shell: Shell) -> None:
    added(shell)
    shell.write("many.jsonl", '{"run_id": "one"}\n{"run_id": "two"}\n')
    done = shell.inside("submit", "site", "--from-jsonl", "many.jsonl")
    assert (done.code, done.out) == (0, "2 runs of site queued\n")
    assert [shell.read(run)["pipeline_version"] for run in ("one", "two")] == [1, 1]


def test_a_file_of_the_name_wins_and_that_is_said(shell: Shell) -> None:
    added(shell)
    shell.write("site", pipeline(("a", "echo file"), name="other"))
    done = shell.inside("run", "site", "--run-id", "run")
    assert done.code == 0
    assert "site is a file here and a registered pipeline; the file is used" in done.err
    assert shell.read("run")["pipeline"] == "other"
    assert "the file is used" in shell.inside("submit", "site").err
    assert shell.inside("run", "site@1", "--run-id", "named").code == 0
    assert shell.read("named")["pipeline"] == "site"


def test_a_directory_of_the_name_does_not_hide_it(shell: Shell) -> None:
    added(shell)
    (shell.directory / "site").mkdir()
    assert shell.inside("run", "site").code == 0


def test_a_wrong_name_is_refused_with_what_is_near_and_makes_no_database(tmp_path: Path) -> None:
    shell = Shell(tmp_path, str(tmp_path / "onward.db"))
    shell.write("hello.dot", FIRST)
    for command in ("run", "submit"):
        done = shell.inside(command, "hello")
        assert done.code == 2
        assert done.err == (
            f"onward: there is no file hello here, and no database {tmp_path / 'onward.db'} "
            "that has registered pipelines; did you mean hello.dot?\n"
        )
    assert not (tmp_path / "onward.db").exists()
    added(shell)
    for command in ("run", "submit"):
        done = shell.inside(command, "sit")
        assert done.err == (
            "onward: there is no file sit here, and no pipeline is registered as 'sit'; did you mean site?\n"
        )
        assert done.code == 2
    shell.close()


def test_a_pipeline_with_errors_is_refused_with_its_diagnostics(shell: Shell) -> None:
    shell.write("bad.dot", FIRST.replace("-> exit", "-> nowhere"))
    done = shell.inside("pipelines", "add", "bad.dot")
    assert done.code == 2
    assert "bad.dot:5:" in done.err
    assert "names node 'nowhere'" in done.err
    found = shell.inside("pipelines", "add", "bad.dot", "--json").error
    assert found["code"] == "invalid_pipeline"
    assert found["diagnostics"]


LONG = "x" * 300


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", ""), "there is no such file"),
        (("add", "nothing.dot"), "there is no such file"),
        (("add", "place"), "Is a directory"),
        (("add", "site.dot", "--name", ""), "'' cannot be the name"),
        (("add", "site.dot", "--name", "a b"), "'a b' cannot be the name"),
        (("add", "site.dot", "--name", LONG), "xxx…' cannot be the name"),
        (("add", "site.dot", "--by", ""), "cannot be a name"),
        (("add", "site.dot", "--version", "1"), "--version has no effect on `onward pipelines add"),
        (("add",), "name the file to add"),
        (("show", LONG), "cannot be the name"),
        (("show", "site", "--version", "0"), "the version '0' is not a whole number from 1"),
        (("show", "site", "--version", "9999999999999999999"), "is not a whole number from 1"),
        (("show", "site@1", "--version", "1"), "already names a version"),
        (("show", "site@"), "the version '' is not a whole number"),
        (("enable", "site", "0"), "the version '0' is not a whole number from 1"),
        (("enable", "site", "9999999999999999999"), "is not a whole number from 1"),
        (("enable", "site", "2"), "the pipeline site has no version 2; its newest is 1."),
        (("enable", "site"), "name the version to enable"),
        (("enable", "site@1", "1"), "name the version to enable"),
        (("remove", "nothing"), "no pipeline is registered as 'nothing'"),
        (("remove", "site", "1"), "name the pipeline to remove"),
        (("remove",), "name the pipeline to remove"),
        (("list", "site"), "takes no name"),
        (("list", "--no-enable"), "--no-enable has no effect"),
        (("frob",), 'Invalid value "frob"'),
    ],
)
def test_a_wrong_word_is_refused_in_one_sentence(shell: Shell, words: tuple[str, ...], says: str) -> None:
    added(shell)
    (shell.directory / "place").mkdir()
    done = shell.inside("pipelines", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("word", ["site@0", "site@9999999999999999999", "site@7", "other@1", LONG, ""])
def test_a_run_of_what_cannot_be_is_refused_in_one_sentence(shell: Shell, word: str) -> None:
    added(shell)
    for command in ("run", "submit"):
        done = shell.inside(command, word)
        assert (done.code, done.out) == (2, "")
        assert len(done.err.splitlines()) == 1


def test_old_versions_are_counted_where_they_are_not_listed(shell: Shell) -> None:
    for number in range(3):
        added(shell, pipeline(("a", f"echo {number}"), name="site"))
    shown = shell.inside("pipelines", "show", "site", "--limit", "2").out
    assert "… and 1 older version; list them with --limit" in shown
    for name in ("b", "c"):
        shell.inside("pipelines", "add", "site.dot", "--name", name)
    assert "--limit 4" in shell.inside("pipelines", "--limit", "2").err


def test_a_version_that_is_only_stored_is_not_what_new_runs_get(shell: Shell) -> None:
    added(shell)
    assert added(shell, SECOND, "--no-enable") == "site@2 is added; new runs of site get version 1\n"


def test_the_doctor_counts_registered_pipelines(shell: Shell) -> None:
    added(shell)
    assert "1 pipeline registered" in shell.inside("doctor").out

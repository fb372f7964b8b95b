"""`onward init`: what it writes runs at once, continues after a kill, and passes its own tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.shell import Shell


@pytest.mark.slow
def test_what_it_writes_runs_and_is_tested_at_once(shell: Shell) -> None:
    made = shell("init", "shop")
    assert made.code == 0
    assert "onward run graph.dot --simulate --real-tools" in made.out
    shell.directory /= "shop"
    graph = shell("run", "graph.dot", "--simulate", "--real-tools", "--answers", "auto")
    assert graph.code == 0, graph.err
    assert shell("run", "flow.py:publish", "--set", "topic=tea", "--answers", "auto").code == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    tested = subprocess.run(
        command, cwd=shell.directory, env=shell.environment, capture_output=True, text=True
    )
    assert "3 passed" in tested.stdout, tested.stdout + tested.stderr


@pytest.mark.slow
@pytest.mark.crash
def test_its_flow_continues_after_a_kill(shell: Shell) -> None:
    shell("init")
    running = shell.start(
        "run", "flow.py:publish", "--set", "topic=tea", "--run-id", "one", "--answers", "wait"
    )
    running.wait_for("started   flow#1")
    running.process.kill()
    running.end()
    done = shell("resume", "one", "--answers", "auto")
    assert done.code == 0, done.err
    assert shell("verify", "one").code == 0


def test_a_file_that_is_there_is_never_overwritten(shell: Shell) -> None:
    shell.write("graph.dot", "mine")
    done = shell.inside("init")
    assert done.code == 2
    assert "graph.dot already exists" in done.err
    assert (shell.directory / "graph.dot").read_text() == "mine"
    assert not (shell.directory / "flow.py").exists()


def test_git_gets_neither_the_database_nor_the_token_and_its_own_list_stays(shell: Shell) -> None:
    shell.inside("init", "shop")
    assert ".onward/" in (shell.directory / "shop/.gitignore").read_text()
    shell.write(".gitignore", "mine")
    assert shell.inside("init").code == 0
    assert (shell.directory / ".gitignore").read_text() == "mine"


def test_with_a_key_its_graph_is_offered_as_it_is(shell: Shell) -> None:
    shell.environment["OPENAI_API_KEY"] = "k" * 20
    assert "onward run graph.dot\n" in shell.inside("init").out
    assert shell.inside("validate", "graph.dot").code == 0


def test_for_a_program_it_lists_its_files(shell: Shell) -> None:
    assert shell.inside("init", "shop", "--json").json["files"] == [
        *("flow.py", "graph.dot", "test_flow.py", "onward.toml"),
    ]


def test_a_file_where_a_directory_should_be_is_called_a_file(shell: Shell) -> None:
    shell.write("taken", "mine")
    assert "cannot write into taken: it is a file, and no directory." in shell.inside("init", "taken").err
    assert shell.inside("init", "shop").code == 0
    run = shell.inside("run", "shop/graph.dot", "--simulate", "--db", "taken/x.db")
    assert run.code == 1
    assert "cannot create taken/x.db: taken is a file, and no directory; choose another --db." in run.err
    assert (shell.directory / "taken").read_text() == "mine"

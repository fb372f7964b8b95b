"""Completion, driven in the shells themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.cli.completion import complete
from tests.cli.shell import GATE, ONWARD, PATIENCE_S, Shell, Terminal, pipeline

IN_BASH = """
source onward.bash
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_onward 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell with files, a run that completed and one that waits; no test changes them."""
    directory = tmp_path_factory.mktemp("full")
    shell = Shell(directory, str(directory / "onward.db"))
    shell.environment["PATH"] = f"{Path(ONWARD).parent}{os.pathsep}{shell.environment['PATH']}"
    shell.write("hello.dot", pipeline(("a", "true")))
    shell.write("help me.txt", "")
    (shell.directory / "helpers").mkdir()
    shell.write("gate.dot", GATE)
    assert shell.inside("pipelines", "add", "hello.dot", "--name", "site").code == 0
    assert shell.inside("run", "hello.dot", "--run-id", "fine").code == 0
    assert shell.inside("run", "gate.dot", "--run-id", "asks").code == 75
    for name in ("bash", "zsh", "fish"):
        shell.write(f"onward.{name}", shell.inside("completion", name).out)
    yield shell
    shell.close()


def offered(shell: Shell, line: str) -> list[str]:
    """The words that are offered at the end of a line."""
    words = line.split(" ")
    done = shell.inside("__complete", str(len(words) - 1), *words)
    assert (done.code, done.err) == (0, "")
    return [one.partition("\t")[0] for one in done.out.splitlines()]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("onward ver", ["nothing", "verify", "version"]),
        ("onward --json ver", ["nothing", "verify", "version"]),
        ("onward run hel", ["files"]),
        ("onward run sit", ["files", "site"]),
        ("onward submit ", ["files", "site"]),
        ("onward pipelines ", ["nothing", "list", "add", "show", "enable", "remove"]),
        ("onward pipelines show ", ["nothing", "site"]),
        ("onward pipelines add ", ["files"]),
        ("onward pipelines enable site ", ["nothing"]),
        ("onward run --simulate ", ["files"]),
        ("onward run --set a=b --verbose hel", ["files"]),
        ("onward run hello.dot x", ["nothing"]),
        ("onward run hello.dot --cwd ", ["directories"]),
        ("onward receipts fine --out ", ["directories"]),
        ("onward --db ", ["files"]),
        ("onward effect pay -- ca", ["files"]),
        ("onward completion ", ["nothing", "bash", "zsh", "fish"]),
        ("onward graph x --format ", ["nothing", "svg", "text"]),
        ("onward graph x --format = s", ["nothing", "svg"]),
        ("onward graph x --format=s", ["nothing", "svg"]),
        ("onward run hello.dot --keep", ["nothing", "--keep-workspace"]),
        ("onward frobnicate x", ["nothing"]),
        ("onward status nothing", ["nothing"]),
    ],
)
def test_what_can_stand_at_the_cursor_is_offered(full: Shell, line: str, words: list[str]) -> None:
    assert offered(full, line) == words


def test_runs_are_offered_that_the_command_can_be_about(full: Shell) -> None:
    fine, asks = "fine", "asks"
    assert offered(full, "onward show ") == ["nothing", asks, fine]
    assert offered(full, "onward resume ") == ["nothing", asks]
    assert offered(full, "onward dismiss ") == ["nothing"]
    assert offered(full, "onward answer ") == ["nothing", asks]
    assert offered(full, "onward pause --timeout 3 ") == ["nothing", asks]
    assert offered(full, "onward show fi") == ["nothing", "fine"]
    short = full.read("fine")["display_id"]
    assert offered(full, f"onward show {short[:4]}") == ["nothing", short]
    assert offered(full, f"onward export {fine} ") == ["nothing", asks, fine]
    assert offered(full, "onward graph ") == ["files", asks, fine]


def test_a_database_that_cannot_be_read_offers_nothing_and_is_not_made(full: Shell) -> None:
    assert offered(full, "onward show --db new.db ") == ["nothing"]
    assert offered(full, "onward show --db hello.dot ") == ["nothing"]
    assert not (full.directory / "new.db").exists()


def test_a_line_without_a_word_at_the_cursor_is_completed(full: Shell) -> None:
    assert "run" in [one.partition("\t")[0] for one in complete(1, ["onward"])]


def in_bash(shell: Shell, *words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", IN_BASH, "bash", *words],
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.splitlines()))


def test_bash_completes_files_runs_and_flags(full: Shell) -> None:
    assert in_bash(full, "onward", "run", "hel") == ["hello.dot", "help me.txt", "helpers"]
    assert in_bash(full, "onward", "run", "x.dot", "--cwd", "hel") == ["helpers"]
    assert in_bash(full, "onward", "answer", "") == ["asks"]
    assert in_bash(full, "onward", "answer", "x", "--appr") == ["--approve"]
    assert in_bash(full, "onward", "graph", "x", "--format", "=", "te") == ["text"]


def test_a_tab_in_bash_completes_the_line(full: Shell) -> None:
    """`onward run hello.d` and a tab used to beep."""
    terminal = Terminal(
        [shutil.which("bash") or "bash", "--norc", "-i"], full.directory, full.environment, has_pipe=False
    )
    terminal.type("PS1='ready> '; source onward.bash\n")
    terminal.wait_for(r"\nready> $")
    terminal.type("onward validate hello.d\t\n")
    terminal.wait_for("hello.dot is valid")
    terminal.type("onward validate hel\t\t")
    terminal.wait_for(r"helpers/")
    terminal.type("\x15exit\n")
    assert terminal.end().code == 0


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_a_tab_in_zsh_completes_the_line(full: Shell) -> None:
    terminal = Terminal(
        [shutil.which("zsh") or "zsh", "-f", "-i"], full.directory, full.environment, has_pipe=False
    )
    terminal.type("PS1='ready> '; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D\n")
    terminal.type("source ./onward.zsh; echo is'-'there\n")
    terminal.wait_for("is-there")
    terminal.type("onward validate hello.d\t\n")
    terminal.wait_for("hello.dot is valid")
    terminal.type("onward status as\t\n")
    terminal.wait_for("run asks: gate")
    terminal.type("exit\n")
    assert terminal.end().code == 0


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_files_runs_and_flags(full: Shell) -> None:
    def in_fish(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source onward.fish; complete -C '{line}'"],
            cwd=full.directory,
            env=full.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return [one.partition("\t")[0] for one in done.stdout.splitlines()]

    assert in_fish("onward validate hello") == ["hello.dot"]
    assert in_fish("onward run x.dot --cwd=hel") == ["--cwd=helpers/"]
    assert in_fish("onward answer ") == ["asks"]
    assert in_fish("onward graph x --format=te") == ["--format=text"]
    assert in_fish("onward answer x --appr") == ["--approve"]

"""What a new user reads first: the help, and what is said about a typing mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import pytest

from onward.cli.main import COMMANDS, GROUPS
from onward.cli.manual import MANUAL
from tests.cli.shell import ONWARD, Done, Shell

NAMES = [name for name, _, _ in COMMANDS]


@pytest.fixture(scope="module")
def helps(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Done]:
    """`onward NAME --help`, printed once for all tests."""
    directory = tmp_path_factory.mktemp("helps")
    shell = Shell(directory, str(directory / "onward.db"))
    return cache(lambda name: shell.inside(name, "--help"))


def test_the_help_has_a_heading_for_each_kind_of_command(shell: Shell) -> None:
    lines = shell.inside("--help").out.splitlines()
    headings = [line.split()[1] for line in lines if line.startswith("╭─")]
    assert headings == [*GROUPS.values(), "Flags"]
    listed = [line.split()[1] for line in lines if line.startswith("│ ")]
    assert sorted(NAMES) == sorted(name for name in listed if name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_examples_and_exit_codes_in_its_help(
    helps: Callable[[str], Done], name: str
) -> None:
    assert name in MANUAL, f"`onward {name}` has no examples and exit codes; add a row in cli/manual/."
    done = helps(name)
    assert done.code == 0
    for line, says in MANUAL[name].examples.items():
        assert f"  {line}\n      {says}\n" in done.out
        assert line.startswith("onward ")
    codes = done.out.partition("\nExit codes:\n")[2].splitlines()
    told = [line.split()[0] for line in codes if not line.startswith("   ")]
    assert told == [str(code) for code in MANUAL[name].exits]
    assert 0 in MANUAL[name].exits


@pytest.mark.parametrize("name", NAMES)
def test_no_help_calls_a_flag_that_is_off_false(helps: Callable[[str], Done], name: str) -> None:
    said = " ".join(helps(name).out.split())
    assert "default: False" not in said
    assert "default: True" not in said
    assert "default: ]" not in said


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("show", "RUN [STEP]"),
        ("run", "FILE|NAME"),
        ("status", "[RUN]"),
        ("answer", "[RUN] [CHOICE]"),
        ("artifacts", "RUN [ID]"),
        ("messages", "RUN|CHAT"),
        ("graph", "RUN|FILE"),
        ("effect", "KEY [-- COMMAND...]"),
        ("limits", "[show | set SCOPE KEY VALUE | reset SCOPE]"),
    ],
)
def test_the_usage_line_names_what_a_command_takes(
    helps: Callable[[str], Done], name: str, takes: str
) -> None:
    line = helps(name).out.splitlines()[0]
    assert line == f"Usage: onward {name} {takes} [OPTIONS]"


@pytest.mark.parametrize("name", NAMES)
def test_no_usage_line_says_args(helps: Callable[[str], Done], name: str) -> None:
    assert "ARGS" not in helps(name).out.splitlines()[0]


def test_the_help_of_a_command_says_all_of_its_docstring(helps: Callable[[str], Done]) -> None:
    said = " ".join(helps("export").out.split())
    assert "The file is a snapshot; the runs in the database stay, and continue." in said


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("statsu",), " Did you mean stats or status?"),
        (("resme", "x"), " Did you mean resume?"),
        (("rum", "x.dot"), " Did you mean run?"),
        (("runn", "x.dot"), " Did you mean run?"),
        (("help",), " Did you mean --help?"),
        (("run", "--hlep"), " Did you mean --help?"),
        (("run", "x.dot", "--sett", "a=1"), " Did you mean --set?"),
        (("check",), " Did you mean validate?"),
        (("list",), " Did you mean status?"),
        (("fork", "x"), " Did you mean replay?"),
        (("run", "x.dot", "--input", "a=1"), " Did you mean --set?"),
        (("run", "x.dot", "--simulat"), " Did you mean --simulate?"),
        (("status", "--limt=3"), " Did you mean --limit?"),
        (("start", "x.dot"), " Did you mean run?"),
        (("restart", "x"), ""),
        (("delete", "x"), ""),
        (("stop", "x"), ""),
        (("status", "--last"), ""),
        (("run", "x.dot", "--dry-run"), ""),
    ],
)
def test_only_a_close_name_is_suggested(shell: Shell, words: tuple[str, ...], hint: str) -> None:
    done = shell.inside(*words)
    assert done.code == 2
    typed = next(
        word for word in reversed(words) if len(words) == 1 or word.startswith("-") or word == words[0]
    )
    assert typed.partition("=")[0] in done.err
    assert f".{hint} See `onward" in done.err
    assert "Available commands" not in done.err


def test_the_help_imports_no_command_and_nothing_that_executes_runs() -> None:
    """What costs time to import is not needed to print the list of commands."""
    look = (
        "import sys, contextlib, io\n"
        "from onward.cli.main import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    code = run(['--help'])\n"
        "own = ('cli.commands.', 'cli.manual', 'engine', 'store', 'operations', 'pipeline')\n"
        "heavy = (*(f'onward.{name}' for name in own), 'asyncio', 'apsw', 'psycopg', 'zstandard')\n"
        "print(code, sorted(name for name in sys.modules if name.startswith(heavy)))\n"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ()])
def test_a_reader_who_has_seen_enough_of_the_help_is_no_failure(shell: Shell, words: tuple[str, ...]) -> None:
    def printed_to(file: int) -> tuple[int, str]:
        done = subprocess.run(
            [ONWARD, *words], stdout=file, stderr=subprocess.PIPE, text=True, env=shell.environment
        )
        return done.returncode, done.stderr

    reading, writing = os.pipe()
    os.close(reading)
    assert printed_to(writing) == (0, "")
    os.close(writing)
    full = os.open("/dev/full", os.O_WRONLY)
    assert printed_to(full) == (1, "onward: the output could not be written: No space left on device.\n")
    os.close(full)


def test_a_help_flag_behind_two_dashes_belongs_to_the_other_command(shell: Shell) -> None:
    done = shell.inside("effect", "key", "--", "printf", "%s", "--help")
    assert (done.code, done.out) == (0, "--help")

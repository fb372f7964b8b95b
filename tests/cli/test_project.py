"""Which database, settings and app a command uses: flags on either side, and the project above."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.shell import Shell, pipeline

LINE = pipeline(("a", "true"))


@pytest.fixture
def bare(shell: Shell) -> Shell:
    """A shell whose environment names no database; its home is above its directory."""
    del shell.environment["ONWARD_DB"]
    home = shell.directory
    shell.directory = home / "project"
    shell.directory.mkdir()
    shell.write("line.dot", LINE)
    return shell


def below(shell: Shell, *names: str) -> Shell:
    """The same person, in a directory further down."""
    shell.directory = shell.directory.joinpath(*names)
    shell.directory.mkdir(parents=True)
    return shell


# -- flags ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("--db", "other.db", "--json", "status"),
        ("--db=other.db", "status", "--json"),
        ("--json", "--runs", "runs", "status", "--db", "other.db"),
    ],
)
def test_a_flag_of_every_command_may_come_before_it(shell: Shell, words: tuple[str, ...]) -> None:
    shell.write("line.dot", LINE)
    assert shell.inside("--db", "other.db", "run", "line.dot", "--run-id", "one").code == 0
    assert not Path(shell.db).exists()
    done = shell.inside(*words)
    assert (done.code, [run["id"] for run in done.json]) == (0, ["one"])


def test_a_flag_before_the_command_is_not_a_word_of_the_command_that_is_run(shell: Shell) -> None:
    done = shell.inside("--db", "other.db", "effect", "key", "--", "echo", "--db")
    assert (done.code, done.out) == (0, "--db\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--db", "a.db", "status", "--db", "b.db"), "--db is given twice; give it once."),
        (("--db", "a.db"), "there is no command after --db a.db"),
        (("--db",), "there is no command after --db"),
        (("--json",), "there is no command after --json"),
        (("--server", "nowhere", "status"), "the server 'nowhere' is not an address"),
        (("--follow", "status"), "--follow comes before the command; write it after"),
        (("--db", "a.db", "statu"), "statu"),
    ],
)
def test_a_wrong_word_before_the_command_is_told(shell: Shell, words: tuple[str, ...], said: str) -> None:
    done = shell.inside(*words)
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert said in done.err


# -- the project above ---------------------------------------------------------------------------------


def test_the_database_is_found_above_and_said(bare: Shell) -> None:
    assert "using" not in bare.inside("run", "line.dot", "--run-id", "one").err
    db = bare.directory / ".onward" / "onward.db"
    done = below(bare, "src", "deep").inside("status", "--json")
    assert [run["id"] for run in done.json] == ["one"]
    assert done.err == f"using the database {db}, found above this directory\n"
    assert bare.inside("run", "../../line.dot", "--run-id", "two").code == 0
    assert not (bare.directory / ".onward").exists()
    assert [run["id"] for run in bare.inside("status", "--json").json] == ["two", "one"]


def test_a_database_that_is_named_is_not_looked_for(bare: Shell) -> None:
    assert bare.inside("run", "line.dot").code == 0
    done = below(bare, "src").inside("status", "--db", "mine.db")
    assert "the database mine.db does not exist yet" in done.out
    assert "using" not in done.err


def test_the_search_ends_at_the_home_directory(bare: Shell) -> None:
    assert bare.inside("run", "line.dot").code == 0
    bare.environment["HOME"] = str(bare.directory / "home")
    done = below(bare, "home", "src").inside("status")
    assert "the database .onward/onward.db does not exist yet" in done.out


def test_a_new_database_is_made_in_the_project_that_has_settings(bare: Shell) -> None:
    bare.write("onward.toml", 'files = "off"\n')
    project = bare.directory
    done = below(bare, "src").inside("run", "../line.dot")
    assert done.code == 0
    assert (project / ".onward" / "onward.db").exists()
    assert not (bare.directory / ".onward").exists()


def test_the_nearest_project_is_taken(bare: Shell) -> None:
    assert bare.inside("run", "line.dot", "--run-id", "outer").code == 0
    below(bare, "inner").write("onward.toml", "")
    assert bare.inside("run", "../line.dot", "--run-id", "inner").code == 0
    assert [run["id"] for run in below(bare, "src").inside("status", "--json").json] == ["inner"]


def test_settings_above_mean_paths_and_modules_beside_them(bare: Shell) -> None:
    bare.write("onward.toml", 'app = "shop:app"\nruns = "kept"\n')
    bare.write(
        "shop.py",
        "from onward import Onward\n"
        "app = Onward('shop.db')\n"
        "@app.handler('buy')\n"
        "async def buy(step): return {'bought': True}\n",
    )
    bare.write(
        "buy.dot", "digraph g { start [shape=Mdiamond] exit [shape=Msquare] b [type=buy] start -> b -> exit }"
    )
    project = bare.directory
    done = below(bare, "src").inside("run", "../buy.dot", "--files", "full", "--run-id", "one")
    assert (done.code, os.listdir(bare.directory)) == (0, []), done.err
    assert (project / "shop.db").exists()
    assert (project / "kept" / "one").is_dir()
    assert bare.inside("show", "one", "--json").json["context"]["bought"] is True


def test_a_directory_of_another_user_is_not_trusted(bare: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write above, as in a shared directory for temporary files, must not choose what is run."""
    assert bare.inside("run", "line.dot").code == 0
    theirs, owner = bare.directory / ".onward", os.getuid()
    if owner == 0:
        os.chown(theirs, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert bare.inside("status").code == 0, "in the current directory it was chosen by going there"
    done = below(bare, "src").inside("status")
    assert "the database .onward/onward.db does not exist yet" in done.out
    assert f"{theirs} belongs to another user and is ignored; name a database with --db" in done.err


def test_validate_needs_no_database_and_speaks_of_none(bare: Shell) -> None:
    assert bare.inside("run", "line.dot").code == 0
    assert below(bare, "src").inside("validate", "../line.dot").err == ""

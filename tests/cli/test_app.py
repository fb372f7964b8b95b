"""An app of one's own behind the command line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.cli.shell import Shell

APP = """
from onward import Onward

app = Onward("own.db")

@app.handler("shout")
async def shout(step):
    print("a handler may print")
    return {"shouted": step.get("text", "").upper()}

class deeper:
    app = app
"""
SHOUT = "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; a [type=shout]; start -> a -> exit }"


def test_the_handlers_of_an_app_serve_a_run(shell: Shell) -> None:
    """P21."""
    shell.write("mine.py", APP)
    shell.write("shout.dot", SHOUT)
    done = shell.inside("run", "shout.dot", "--run-id", "loud", "--set", "text=hello", "--app", "mine:app")
    assert done.code == 0, done.err
    assert shell.read("loud")["context"]["shouted"] == "HELLO"
    assert shell.inside("validate", "shout.dot", "--app", "mine:deeper.app").out.endswith("0 warnings\n")


def test_what_a_handler_prints_does_not_get_into_the_json(shell: Shell) -> None:
    shell.write("mine.py", APP)
    shell.write("shout.dot", SHOUT)
    done = shell.inside("run", "shout.dot", "--app", "mine:app", "--json")
    assert done.json["status"] == "completed"
    assert "a handler may print" in done.err


def test_the_store_of_an_app_is_used_unless_a_database_is_given(shell: Shell) -> None:
    shell.write("mine.py", APP)
    shell.write("shout.dot", SHOUT)
    shell.write("onward.toml", 'app = "mine:app"\n')
    given = shell.environment.pop("ONWARD_DB")
    assert shell.inside("run", "shout.dot", "--run-id", "own").code == 0
    assert (shell.directory / "own.db").exists()
    assert [run["id"] for run in shell.inside("status", "--json").json] == ["own"]
    assert shell.inside("run", "shout.dot", "--run-id", "given", "--db", given).code == 0
    assert [run["id"] for run in shell.inside("status", "--json", "--db", given).json] == ["given"]


def test_the_next_command_names_the_same_database_and_app(shell: Shell) -> None:
    shell.write("mine.py", APP)
    shell.write("shout.dot", SHOUT.replace("start -> a", "ask [shape=hexagon]; start -> ask -> a"))
    done = shell.inside("run", "shout.dot", "--app", "mine:app", "--db", "a place.db")
    assert done.code == 75
    name = shell.inside("status", "--json", "--db", "a place.db").json[0]["display_id"]
    last = done.out.splitlines()[-1]
    assert last == f"continue with: onward answer {name} --db 'a place.db' --app mine:app"


def test_what_a_handler_prints_stands_above_the_step_in_a_terminal(shell: Shell) -> None:
    shell.write("mine.py", APP)
    shell.write("shout.dot", SHOUT)
    terminal = shell.terminal("run", "shout.dot", "--app", "mine:app")
    done = terminal.end()
    assert done.code == 0
    assert "a handler may print\n" in done.out.replace("\r", "")


RULED = """
from onward import Onward

app = Onward("own.db")
app.severity("reachability", "warning")

@app.transform
def name_the_model(graph):
    if graph.name == "broken":
        return None
    return graph
"""


def test_validate_and_graph_use_the_transforms_and_rules_of_the_app_like_a_run(shell: Shell) -> None:
    """O8, C4: what a run would refuse, the others refuse, and in the same words."""
    shell.write("mine.py", RULED)
    orphan = "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; a [label=x]; start -> exit }"
    shell.write("orphan.dot", orphan)
    shell.write("broken.dot", orphan.replace("digraph g", "digraph broken"))
    assert shell.inside("validate", "orphan.dot").code == 2
    assert shell.inside("validate", "orphan.dot", "--app", "mine:app").out.endswith("1 warning\n")
    assert (
        shell.inside("run", "orphan.dot", "--app", "mine:app", "--simulate", "--run-id", "orphan").code == 0
    )
    for subject in ("orphan.dot", "orphan"):
        assert shell.inside("graph", subject, "--app", "mine:app", "--format", "svg").code == 0
    said = "transform 'name_the_model' returned None, not a graph"
    for command in ("validate", "run", "graph"):
        done = shell(command, "broken.dot", "--app", "mine:app")
        assert (done.code, said in done.out + done.err) == (2, True)


def test_where_a_transform_failed_is_shown_on_request(shell: Shell) -> None:
    shell.write("mine.py", RULED.replace("return None", "raise KeyError('gone')"))
    shell.write("broken.dot", "digraph broken { start; exit; start -> exit }")
    done = shell.inside("run", "broken.dot", "--app", "mine:app")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "transform 'name_the_model' raised KeyError: 'gone'" in done.err
    shell.environment["ONWARD_DEBUG"] = "1"
    assert "in name_the_model" in shell.inside("run", "broken.dot", "--app", "mine:app").err


FLOW = """
import pathlib
from onward import flow

pathlib.Path("imported").touch()

@flow
async def build():
    return 1
"""
HELPERS = """
from onward import Onward

app = Onward()


@app.handler("first")
async def first(step):
    return None


@app.handler("second")
async def second(step):
    raise ValueError("not yet")
"""


def helped(shell: Shell) -> None:
    """A run that needs an app, and has failed in its second step."""
    shell.write("helpers.py", HELPERS)
    nodes = "start [shape=Mdiamond]; exit [shape=Msquare]; a [type=first]; b [type=second]"
    shell.write("helped.dot", f"digraph g {{ {nodes}; start -> a -> b -> exit }}")
    assert shell.inside("run", "helped.dot", "--run-id", "helped", "--app", "helpers:app").code == 1


def as_another_user(shell: Shell) -> None:
    """From here on nothing is known of what was executed before."""
    shell.environment["XDG_STATE_HOME"] = str(shell.directory / "another")


def test_the_command_to_continue_a_run_names_the_app_that_it_needs(shell: Shell) -> None:
    helped(shell)
    as_another_user(shell)
    for command in ("status", "show"):
        given = shell.inside(command, "helped", "--app", "helpers:app").out
        assert "  continue onward resume helped --app helpers:app\n" in given
        assert "onward resume helped --app PACKAGE.MODULE:APP\n" in shell.inside(command, "helped").out
    shell.environment["ONWARD_APP"] = "helpers:app"
    assert "  continue onward resume helped\n" in shell.inside("status", "helped").out


def test_a_resume_without_the_app_names_a_step_that_is_not_finished(shell: Shell) -> None:
    helped(shell)
    as_another_user(shell)
    assert "node 'b' needs handler 'second'" in shell.inside("resume", "helped").err


def test_a_refusal_repeats_the_flags_in_what_it_says_to_type(shell: Shell) -> None:
    helped(shell)
    refused = shell.inside("resume", "nobody", f"--db={shell.db}", "--app", "helpers:app")
    assert f"`onward status --db {shell.db} --app helpers:app` lists" in refused.err
    assert "`onward status` lists" in shell.inside("resume", "nobody").err


def test_a_run_keeps_its_app_for_a_resume_from_any_directory(shell: Shell, tmp_path: Path) -> None:
    """Nothing has to be named again, neither in the project nor elsewhere."""
    helped(shell)
    shell.write("helpers.py", HELPERS.replace('raise ValueError("not yet")', "return {}"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    del shell.environment["ONWARD_DB"]
    command = f"onward resume helped --db {shell.db}\n"
    assert command in shell.inside("status", "helped", "--db", shell.db).out
    done = Shell(elsewhere, shell.db)
    done.environment = shell.environment
    resumed = done("resume", "helped")
    assert resumed.code == 0, resumed.err
    assert "run helped completed" in resumed.out


def test_a_worker_loads_no_app_that_a_run_was_started_with(shell: Shell) -> None:
    """Code is named by a command line or by onward.toml, and never by a run."""
    helped(shell)
    assert shell.inside("resume", "helped", "--queue").code == 0
    assert shell.inside("worker", "--until-idle").code == 0
    assert shell.read("helped")["status"] == "queued"


def test_an_imported_run_has_no_app(shell: Shell, tmp_path: Path) -> None:
    helped(shell)
    shell.inside("export", "helped", "--out", "helped.export")
    shell.environment["ONWARD_DB"] = str(tmp_path / "other.db")
    assert shell.inside("import", "helped.export").code == 0
    assert "node 'b' needs handler 'second'" in shell.inside("resume", "helped").err


def test_a_worker_imports_no_file_that_a_run_names(shell: Shell) -> None:
    """Not even for a run whose row claims to need nothing."""
    shell.write("site.py", FLOW)
    assert shell.inside("submit", "site.py:build", "--run-id", "flow").code == 0
    (shell.directory / "imported").unlink()
    with sqlite3.connect(shell.db) as db:
        db.execute("UPDATE run SET needs = ''")
    db.close()
    shell("worker", "--until-idle")
    assert not (shell.directory / "imported").exists()


def test_a_resume_imports_no_file_that_only_a_row_of_the_database_names(shell: Shell, tmp_path: Path) -> None:
    """An imported run, or one that somebody else submitted, must not choose the code that is executed."""
    shell.write("site.py", FLOW)
    assert shell.inside("submit", "site.py:build", "--run-id", "flow").code == 0
    shell.inside("export", "flow", "--out", "flow.export")
    (shell.directory / "imported").unlink()
    shell.environment["ONWARD_DB"] = str(tmp_path / "other.db")
    assert shell.inside("import", "flow.export").code == 0
    refused = shell("resume", "flow")
    assert refused.code == 2
    assert "needs handler 'flow:build'" in refused.err
    assert not (shell.directory / "imported").exists()
    assert shell("resume", "flow", "--app", "site.py").code == 0


@pytest.mark.parametrize("name", ["lib/helpers.py:app", "lib/helpers.py"])
def test_an_app_may_be_named_by_its_file(shell: Shell, name: str) -> None:
    (shell.directory / "lib").mkdir()
    shell.write("lib/helpers.py", APP)
    shell.write("shout.dot", SHOUT)
    assert shell.inside("run", "shout.dot", "--app", name).code == 0


def test_a_resume_needs_handlers_only_of_steps_that_can_still_run(shell: Shell) -> None:
    shell.write("helpers.py", APP)
    shell.write("onward.toml", 'app = "helpers:app"')
    graph = "a [type=shout]; b [shape=parallelogram, tool_command=false]; start -> a -> b -> exit"
    shell.write("g.dot", f"digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; {graph} }}")
    assert shell.inside("run", "g.dot", "--run-id", "late").code == 1
    shell.write("onward.toml", "")
    resumed = shell.inside("skip", "late")
    assert resumed.code == 0, resumed.err

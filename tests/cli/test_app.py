"""An app of one's own behind the command line."""

from __future__ import annotations

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


def test_the_command_to_continue_a_run_names_the_app_that_it_needs(shell: Shell) -> None:
    helped(shell)
    for command in ("status", "show"):
        given = shell.inside(command, "helped", "--app", "helpers:app").out
        assert "  continue onward resume helped --app helpers:app\n" in given
        assert "onward resume helped --app PACKAGE.MODULE:APP\n" in shell.inside(command, "helped").out
    shell.environment["ONWARD_APP"] = "helpers:app"
    assert "  continue onward resume helped\n" in shell.inside("status", "helped").out


def test_a_resume_without_the_app_names_a_step_that_is_not_finished(shell: Shell) -> None:
    helped(shell)
    assert "node 'b' needs handler 'second'" in shell.inside("resume", "helped").err


def test_a_refusal_repeats_the_flags_in_what_it_says_to_type(shell: Shell) -> None:
    helped(shell)
    refused = shell.inside("resume", "nobody", f"--db={shell.db}", "--app", "helpers:app")
    assert f"`onward status --db {shell.db} --app helpers:app` lists" in refused.err
    assert "`onward status` lists" in shell.inside("resume", "nobody").err

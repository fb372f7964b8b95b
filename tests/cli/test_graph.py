"""`onward graph`: of a file and of a run, onto a terminal, into a pipe, into a file."""

from __future__ import annotations

import os
from xml.etree import ElementTree

import pytest

from onward.model.ids import called
from tests.cli.shell import GATE, Shell, pipeline

SVG = "{http://www.w3.org/2000/svg}"
RETRIED = """
digraph work {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  flaky [shape=parallelogram, max_retries=1, tool_command="test $ONWARD_ATTEMPT -ge 2"]
  ask [shape=hexagon, label="Send it?"]
  send [shape=parallelogram, tool_command="echo no luck >&2; exit 3"]
  start -> flaky -> ask
  ask -> send [label="[Y] Yes"]
  ask -> flaky [label="[N] Again"]
  send -> exit
}
"""
FAN = """
digraph fan {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  fan [shape=component]
  lint [shape=parallelogram, tool_command="true"]
  test [shape=parallelogram, tool_command="true"]
  deep [shape=parallelogram, tool_command="exit 4"]
  join [shape=tripleoctagon]
  ask [shape=hexagon, label="Again?"]
  start -> fan -> lint -> join -> ask
  fan -> test -> deep -> join
  ask -> fan [label="[Y] Yes"]
  ask -> exit [label="[N] No"]
}
"""


def waiting(shell: Shell, run_id: str = "work") -> None:
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", run_id).code == 75


def test_a_file_is_drawn_as_svg_into_a_pipe(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    done = shell.inside("graph", "gate.dot")
    assert (done.code, done.err) == (0, "")
    root = ElementTree.fromstring(done.out)
    assert root.tag == f"{SVG}svg"
    assert root.findtext(f"{SVG}title") == "gate"
    assert not os.path.exists(shell.db)


def test_a_run_is_drawn_with_what_happened_in_it(shell: Shell) -> None:
    shell.write("work.dot", RETRIED)
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 75
    assert shell.inside("answer", "work", "n").code == 75
    assert shell.inside("answer", "work", "y").code == 1
    done = shell.inside("graph", "work", "--format", "text")
    name = called("work")
    assert (
        done.out
        == f"""\
work: run {name}, failed

✓ start  succeeded                       start
✓ flaky  succeeded, 2 visits, 2 retries  tool
✓ ask    succeeded, 2 visits             human gate  Send it?
┣━▶ send     [Y] Yes
┗━▶ flaky ↑  [N] Again

✗ send   failed                          tool
    exit code 3: no luck
· exit   not reached                     exit

✗ failed   ✓ succeeded   · not reached
└─▷ edge   ┗━▶ edge taken   ↑ loops back   no arrow: leads to the next line
"""
    )
    view = shell.inside("graph", name, "--json").json
    assert view["run"]["id"] == "work"
    states = {node["id"]: (node["state"], node["visits"], node["retries"]) for node in view["nodes"]}
    assert states == {
        "start": ("succeeded", 1, 0),
        "exit": ("not_reached", 0, 0),
        "flaky": ("succeeded", 2, 2),
        "ask": ("succeeded", 2, 0),
        "send": ("failed", 1, 0),
    }
    taken = {(edge["source"], edge["target"]): edge["taken"] for edge in view["edges"]}
    assert taken == {
        ("start", "flaky"): 1,
        ("flaky", "ask"): 2,
        ("ask", "send"): 1,
        ("ask", "flaky"): 1,
        ("send", "exit"): 0,
    }
    assert [edge["target"] for edge in view["edges"] if edge["loops_back"]] == ["flaky"]


def test_branches_that_ran_beside_each_other_are_put_together(shell: Shell) -> None:
    shell.write("fan.dot", FAN)
    assert shell.inside("run", "fan.dot", "--run-id", "work").code == 75
    assert shell.inside("answer", "work", "y").code == 75
    assert (
        shell.inside("graph", "work", "--format", "text").out
        == f"""\
fan: run {called("work")}, waiting

✓ start  succeeded            start
◐ fan    partial, 2 visits    fan-out
┣━▶ lint    ×2
┗━▶ test    ×2

✓ lint   succeeded, 2 visits  tool
┗━▶ join    ×2

✓ test   succeeded, 2 visits  tool
✗ deep   failed, 2 visits     tool
    exit code 4
✓ join   succeeded, 2 visits  fan-in
? ask    waiting, 2 visits    human gate  Again?
┣━▶ fan  ↑  [Y] Yes
└─▷ exit    [N] No

· exit   not reached          exit

? waiting   ✗ failed   ◐ partial   ✓ succeeded   · not reached
└─▷ edge   ┗━▶ edge taken   ↑ loops back   no arrow: leads to the next line
"""
    )


def test_the_json_of_a_file_has_no_run_in_it(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    view = shell.inside("graph", "gate.dot", "--json").json
    assert (view["pipeline"], view["run"], view["start"], view["rankdir"]) == ("gate", None, "start", "TB")
    assert list(view["nodes"][0]) == [
        "id", "label", "kind", "shape", "state", "visits", "retries", "next", "note",
    ]  # fmt: skip
    assert {edge["taken"] for edge in view["edges"]} == {None}


def test_a_run_that_waits_shows_where(shell: Shell) -> None:
    waiting(shell)
    nodes = {node["id"]: node["state"] for node in shell.inside("graph", "work", "--json").json["nodes"]}
    assert nodes["ask"] == "waiting"
    assert ">waiting</text>" in shell.inside("graph", "work").out


def test_the_stored_source_is_drawn_whatever_became_of_the_file(shell: Shell) -> None:
    waiting(shell)
    os.unlink(shell.directory / "gate.dot")
    assert "Ship it?" in shell.inside("graph", "work").out


def test_original_is_the_pipeline_that_the_run_began_with(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "exit 1")))
    assert shell.inside("run", "ok.dot", "--run-id", "work").code == 1
    shell.write("ok.dot", pipeline(("a", "true"), ("late", "true")))
    assert shell.inside("resume", "work", "--accept-changes").code == 0

    def nodes(*words: str) -> list[str]:
        return [node["id"] for node in shell.inside("graph", "work", "--json", *words).json["nodes"]]

    assert nodes() == ["start", "exit", "a", "late"]
    assert nodes("--original") == ["start", "exit", "a"]


def test_a_fork_shows_the_way_of_its_parent(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true"), ("b", "true")))
    assert shell.inside("run", "ok.dot", "--run-id", "work").code == 0
    checkpoint = shell.inside("checkpoints", "work", "--json").json[2]["seq"]
    forked = ("replay", "work", "--checkpoint", str(checkpoint), "--run-id", "fork", "--no-run")
    assert shell.inside(*forked).code == 0
    view = shell.inside("graph", "fork", "--json").json
    assert {node["id"]: (node["state"], node["next"]) for node in view["nodes"]} == {
        "start": ("succeeded", False),
        "a": ("succeeded", False),
        "b": ("not_reached", True),
        "exit": ("not_reached", False),
    }


def test_a_file_that_exists_wins_over_a_run(shell: Shell) -> None:
    waiting(shell)
    shell.write("work", pipeline(("only", "true")))
    assert shell.inside("graph", "work", "--json").json["run"] is None


@pytest.mark.parametrize("with_database", [True, False])
def test_a_name_that_is_neither_file_nor_run_is_refused_with_both_said(
    shell: Shell, with_database: bool
) -> None:
    if with_database:
        waiting(shell)
    done = shell.inside("graph", "nope", "--json")
    assert (done.code, done.error["code"]) == (1, "run_not_found")
    assert "'nope' is neither a file nor a run: " in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["nope.dot", "./nope"])
def test_a_path_that_leads_nowhere_is_a_missing_file(shell: Shell, name: str) -> None:
    done = shell.inside("graph", name)
    assert done.code == 2
    assert done.err == f"onward: cannot read the pipeline {name}: there is no such file.\n"


def test_an_invalid_pipeline_says_what_validate_says(shell: Shell) -> None:
    shell.write("bad.dot", "digraph g { a -> b; c [max_retries=x] }")
    checked, done = shell.inside("validate", "bad.dot"), shell.inside("graph", "bad.dot")
    assert (done.code, done.out) == (2, "")
    assert done.err == checked.out
    assert len(done.err.splitlines()) > 1


def test_a_file_is_written_whole_and_only_over_another_svg(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    out = shell.directory / "gate.svg"
    assert shell.inside("graph", "gate.dot", "--out", "gate.svg").out == "wrote gate.svg\n"
    first = out.read_text()
    ElementTree.fromstring(first)
    waiting(shell)
    os.chmod(out, 0o640)
    assert shell.inside("graph", "work", "--out", "gate.svg").code == 0
    assert out.read_text() != first
    assert out.stat().st_mode & 0o777 == 0o640
    assert sorted(path.suffix for path in shell.directory.iterdir() if "gate" in path.name) == [
        ".dot",
        ".svg",
    ]


def test_a_file_that_is_no_svg_stays_unless_forced(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    shell.write("mine.svg", GATE)
    done = shell.inside("graph", "gate.dot", "--out", "mine.svg", "--json")
    assert (done.code, done.error["code"]) == (1, "not_svg")
    assert (shell.directory / "mine.svg").read_text() == GATE
    shell.write("empty.svg", "")
    assert shell.inside("graph", "gate.dot", "--out", "empty.svg").code == 0
    shell.write("notes", "mine")
    assert shell.inside("graph", "gate.dot", "--out", "notes", "--force").code == 0
    assert "<svg" in (shell.directory / "notes").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gate.dot", "--out", "missing/x.svg"), "cannot write missing/x.svg: No such file or directory."),
        (("gate.dot", "--out", "."), "--out . is not a file; "),
        (("gate.dot", "--out", "x.svg", "--format", "text"), "--out writes SVG; "),
        (("gate.dot", "--out", "x.PNG"), "--out x.PNG would not be a .PNG: only SVG can be written; "),
        (("gate.dot", "--out", "gate.dot", "--force"), "--out gate.dot would not be a .dot: only SVG "),
        (("gate.dot", "--original"), "--original applies to runs, and gate.dot is a file; "),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    shell: Shell, words: tuple[str, ...], says: str
) -> None:
    shell.write("gate.dot", GATE)
    done = shell.inside("graph", *words)
    assert done.code == 2
    assert done.err.startswith(f"onward: {says}")
    assert len(done.err.splitlines()) == 1
    assert [path.name for path in shell.directory.iterdir()] == ["gate.dot"]


def test_the_ending_of_an_svg_may_be_in_capitals(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    assert shell.inside("graph", "gate.dot", "--out", "GATE.SVG").code == 0


def test_a_terminal_gets_colours_no_wider_than_it_is(shell: Shell) -> None:
    waiting(shell)
    shell.environment["COLUMNS"] = "40"
    terminal = shell.terminal("graph", "work")
    done = terminal.end()
    assert done.code == 0
    assert b"\x1b[" in terminal.bytes
    assert "? ask " in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 40


def test_a_terminal_of_another_character_set_gets_plain_signs_and_whole_xml(shell: Shell) -> None:
    shell.write("gate.dot", GATE.replace("Ship it?", "Los, schnür es zu?"))
    shell.environment |= {"LANG": "C", "PYTHONIOENCODING": "ascii"}
    done = shell("graph", "gate.dot", "--format", "text")
    assert (done.code, done.out.isascii()) == (0, True)
    assert "|-> again" in done.out
    document = shell("graph", "gate.dot").out
    assert document.isascii()
    assert "schnür" in "".join(ElementTree.fromstring(document).itertext())

"""Numbers from outside: whatever is written for one, the answer is one sentence, and never a defect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cyclopts import Argument

from onward.app import Onward
from onward.cli.main import COMMANDS, make_app
from onward.cli.options import NumberReader
from onward.errors import InvalidPipeline
from onward.model.values import DURATION_S_MAX, INTEGER_MAX
from onward.pipeline.rules.attributes import EDGE_TYPES, GRAPH_TYPES, NODE_TYPES
from tests.cli.shell import Shell, pipeline

NEVER = (
    *("100000000000000000000", "9223372036854775808", "-9223372036854775809", "9" * 5_000, "1e999"),
    *("nan", "inf", "-inf", "", " ", "0x10", "1_000", "1e3", "٣", "99999999999999999999s", "-1s"),
    *("999999999999999999d", "1.5s"),
)
PERHAPS = (
    *("0", "1", "-1", "1.5", "1000", "1048576", "2147483647", "-2147483648", "2147483648", "4294967296"),
    *("3153600000", "9223372036854775807", "1s", "36500d", "0s", "65535"),
)
# What a command needs beside the flag, so that it runs to its end with a number that it accepts.
REST: Mapping[str, tuple[str, ...]] = {
    "status": (),
    "events": ("done",),
    "logs": ("done",),
    "replay": ("done", "--no-run"),
    "pause": ("done",),
    "cancel": ("done",),
    "submit": ("line.dot",),
    "worker": ("--until-idle",),
    "gc": ("--dry-run",),
    "import": ("export",),
    "notifications": (),
    "usage": (),
    "limits": (),
    "pipelines": (),
    "chats": (),
    "messages": ("done",),
    "serve": ("--host", "0.0.0.0"),  # which is refused: nothing is served here
    "tokens": ("add", "ci"),
    "audit": (),
}
ATTRIBUTES = ("as_count", "as_positive", "as_integer", "as_duration_s", "as_positive_s")


def arguments() -> dict[tuple[str, str], Argument]:
    """Every flag that takes a number, as the commands themselves declare it."""
    app = make_app()
    every = ((name, one) for name, _, _ in COMMANDS for one in app[name].assemble_argument_collection())
    kinds = (int, float, int | None, float | None)
    return {(name, one.name): one for name, one in every if one.hint in kinds}


def read(reading: NumberReader, text: str) -> tuple[float, str] | None:
    """A number that is accepted, and how it is written."""
    try:
        return reading.read(text), text
    except ValueError:
        return None


FLAGS = sorted(arguments())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """A shell at a database with a run that is over, and an export of it."""
    is_postgres = request.param == "postgres"
    db = request.getfixturevalue("postgres_emptied_url") if is_postgres else str(tmp_path / "onward.db")
    shell = Shell(tmp_path, db)
    shell.write("line.dot", pipeline(("a", "true")))
    assert shell.inside("run", "line.dot", "--run-id", "done", "--files", "off").code == 0
    assert shell.inside("export", "done", "--out", "export").code == 0
    yield shell
    shell.close()


def test_every_flag_that_takes_a_number_has_bounds() -> None:
    """I36."""
    assert len(FLAGS) >= 12
    assert {name for name, _ in FLAGS} == REST.keys()
    for flag, argument in arguments().items():
        reading = argument.parameter.converter
        assert isinstance(reading, NumberReader), flag
        for text in NEVER:
            with pytest.raises(ValueError, match=r"^a "):
                reading.read(text)
        assert any(read(reading, text) for text in PERHAPS)


@pytest.mark.parametrize(("command", "flag"), [*FLAGS, ("worker", "--metrics")])
def test_an_odd_number_is_refused_in_a_sentence(shell: Shell, command: str, flag: str) -> None:
    for text in ("100000000000000000000", "nan", "1e999", "", "9" * 5_000):
        done = shell.inside(command, f"{flag}={text}", *REST[command])
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
        assert f"{flag}" in done.err
        assert " is not a" in done.err
        assert len(done.err) < 300


def test_a_number_that_is_accepted_is_one_that_the_database_can_hold(filled: Shell) -> None:
    """I37."""
    for (command, flag), argument in arguments().items():
        reading = argument.parameter.converter
        assert isinstance(reading, NumberReader)
        accepted = sorted(filter(None, (read(reading, text) for text in PERHAPS)))
        for _, text in (accepted[0], accepted[-1]):
            done = filled.inside(command, f"{flag}={text}", *REST[command])
            assert "defect" not in done.err
            assert done.code == 0 or done.err.count("\n") == 1, done


@pytest.mark.parametrize("value", ["1e999", "nan", "-1", "0", "100000000000000000000", "soon", "9" * 5_000])
def test_an_odd_grace_time_is_a_sentence_wherever_it_is_written(shell: Shell, value: str) -> None:
    """I36."""
    shell.write("line.dot", pipeline(("a", "true")))
    shell.write("onward.toml", f"grace = {json.dumps(value)}\n")
    for _ in ("in the file", "in the environment"):
        done = shell.inside("run", "line.dot")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "write a number of seconds from 0.001 to" in done.err
        shell.write("onward.toml", "")
        shell.environment["ONWARD_GRACE"] = value


@pytest.mark.parametrize("delay_ms", ["1e999", "NaN", "-1", "1e30"])
def test_an_odd_delay_in_a_simulation_is_a_sentence(shell: Shell, delay_ms: str) -> None:
    shell.write("line.dot", pipeline(("a", "true")))
    shell.write("script.json", f'{{"a": [{{"delay_ms": {delay_ms}}}]}}')
    done = shell.inside("run", "line.dot", "--simulate", "script.json")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "script.json:1: a[0]: Expected" in done.err


def attributes() -> Iterator[tuple[str, str, str]]:
    """Every attribute of a pipeline that is a number: whose it is, its name, and how it is read."""
    for owner, types in (("graph", GRAPH_TYPES), ("node", NODE_TYPES), ("edge", EDGE_TYPES)):
        for key, reading in types.items():
            if reading.__name__ in ATTRIBUTES:
                yield owner, key, reading.__name__


def with_attributes(**written: str) -> str:
    graph, node, edge = (written.get(owner, "") for owner in ("graph", "node", "edge"))
    return f"""digraph line {{
        graph [{graph}]
        start [shape=Mdiamond]; exit [shape=Msquare]
        node [{node}]
        a [shape=parallelogram, tool_command="true"]
        start -> a [{edge}]; a -> exit
    }}"""


def test_an_odd_number_in_a_pipeline_is_a_diagnostic(tmp_path: Path) -> None:
    """I36."""
    path = tmp_path / "line.dot"
    for owner, key, _ in attributes():
        for text in NEVER:
            path.write_text(with_attributes(**{owner: f'{key}="{text}"'}))
            with pytest.raises(InvalidPipeline, match=f"{key} of .* is .*write a "):
                Onward(":memory:").read(str(path))


def test_the_largest_numbers_that_a_pipeline_may_have_work(filled: Shell) -> None:
    largest: dict[str, str] = {}
    for owner, key, reading in attributes():
        value = f"{DURATION_S_MAX}s" if reading.endswith("_s") else str(INTEGER_MAX)
        largest[owner] = ", ".join(filter(None, (largest.get(owner), f"{key}={value}")))
    filled.write("line.dot", with_attributes(**largest))
    assert filled.inside("submit", "line.dot").code == 0
    done = filled.inside("worker", "--until-idle")
    assert (done.code, done.err) == (0, "")
    assert "completed" in done.out
    assert filled.inside("verify").out.endswith("0 problems\n")

"""What attempts print is kept: in their directories while it comes, and the end of it in the log."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onward import Onward
from onward.engine.files.rooms import OutputFile
from onward.engine.stop import StopSwitch
from onward.handlers.port import StepContext
from onward.handlers.room import AttemptOutput, Room
from onward.handlers.shell import what_failed
from onward.model.events import (
    OUTPUT_LINE_CHARACTERS_MAX,
    OUTPUT_LINES_MAX,
    TRACEBACK_CHARACTERS_MAX,
    AttemptFailed,
    AttemptInterrupted,
    Event,
    LastOutput,
    StepFinished,
)
from onward.read.lookup import log_pages
from onward.store.codec import unseal
from tests.cli.shell import wait_until
from tests.engine.isolated_functions import raises_a_value_error

STOPPED = (AttemptFailed, AttemptInterrupted)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Onward]:
    app = Onward(str(tmp_path / "runs.db"))  # not opened yet, so that handlers can be registered
    yield app
    await app.close()


def line(attributes: str) -> str:
    ends = "start [shape=Mdiamond]; exit [shape=Msquare]"
    return f"digraph tool {{ {ends}; t [{attributes}]; start -> t -> exit }}"


def command(text: str, more: str = "") -> str:
    return line(f'shape=parallelogram, tool_command="{text}"{more}')


async def ran(app: Onward, source: str, stop: StopSwitch | None = None) -> None:
    await app.run(await app.pipeline(source), run_id="run", stop=stop)


async def events(app: Onward) -> list[Event]:
    log = (await app.engine()).store.log
    return [unseal(record) async for page in log_pages(log, "run") for record in page]


async def last_output(app: Onward) -> LastOutput:
    (found,) = [event for event in await events(app) if isinstance(event, STOPPED)]
    assert found.output is not None
    return found.output


def kept(tmp_path: Path, name: str, *, attempt: str = "t/1") -> str:
    return (tmp_path / "runs.db-runs" / "run" / attempt / name).read_text()


async def test_what_a_failed_command_printed_is_in_its_directory_and_in_the_log(
    app: Onward, tmp_path: Path
) -> None:
    await ran(app, command("echo one; sleep 0.1; echo two >&2; sleep 0.1; printf three; exit 1"))
    assert (kept(tmp_path, "stdout.log"), kept(tmp_path, "stderr.log")) == ("one\nthree", "two\n")
    lines = (await last_output(app)).lines
    assert [(one.stream, one.text) for one in lines] == [
        ("stdout", "one"),
        ("stderr", "two"),
        ("stdout", "three"),
    ]


async def test_a_failure_names_what_the_command_printed_on_standard_output(app: Onward) -> None:
    """Many test tools print there alone."""
    await ran(app, command("echo assert 1 == 2; exit 1"))
    (failed,) = [event for event in await events(app) if isinstance(event, AttemptFailed)]
    assert failed.reason == "exit code 1: assert 1 == 2"


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        ("", "", ""),
        ("1 failed", "", "1 failed"),
        ("building", "no luck", "no luck"),
        ("E  1 == 2", "x.py:1: UserWarning: old", "E  1 == 2; stderr: x.py:1: UserWarning: old"),
        ("ok\n1 failed", "npm warn old lockfile", "1 failed; stderr: npm warn old lockfile"),
        (
            "E  1 == 2",
            "x.py:1: DeprecationWarning: imp\n  import imp",
            "E  1 == 2; stderr: x.py:1: DeprecationWarning: imp\n  import imp",
        ),
        ("2 tests FAILED", "Compiling 3 files", "2 tests FAILED; stderr: Compiling 3 files"),
        ("0 tests failed", "warning: old\nerror: disk full", "warning: old\nerror: disk full"),
    ],
)
def test_a_failure_names_the_stream_that_tells_of_it(stdout: str, stderr: str, said: str) -> None:
    assert what_failed(stdout, stderr) == said


async def test_every_attempt_has_its_own_output(app: Onward, tmp_path: Path) -> None:
    await ran(app, command("echo attempt $ONWARD_ATTEMPT; exit 1", ", max_retries=1"))
    assert kept(tmp_path, "stdout.log") == "attempt 1\n"
    assert kept(tmp_path, "stdout.log", attempt="t/1/attempt-2") == "attempt 2\n"


async def test_a_command_that_succeeded_keeps_its_files_and_nothing_in_the_log(
    app: Onward, tmp_path: Path
) -> None:
    await ran(app, command("echo fine; echo odd >&2"))
    assert (kept(tmp_path, "stdout.log"), kept(tmp_path, "stderr.log")) == ("fine\n", "odd\n")
    assert [event.output for event in await events(app) if isinstance(event, StepFinished)] == [None] * 3


async def test_output_can_be_read_while_the_command_runs(app: Onward, tmp_path: Path) -> None:
    go = tmp_path / "go"
    running = asyncio.create_task(ran(app, command(f"echo early; until test -e {go}; do sleep 0.01; done")))
    printed = tmp_path / "runs.db-runs" / "run" / "t" / "1" / "stdout.log"
    await asyncio.to_thread(wait_until, lambda: printed.exists() and printed.read_text() == "early\n")
    assert not running.done()
    go.touch()
    await running


async def test_a_command_that_took_too_long_keeps_what_it_printed(app: Onward, tmp_path: Path) -> None:
    await ran(app, command("echo before; sleep 30", ", timeout=2s"))
    assert kept(tmp_path, "stdout.log") == "before\n"
    assert [one.text for one in (await last_output(app)).lines] == ["before"]


async def test_a_command_that_was_stopped_keeps_its_last_words(app: Onward, tmp_path: Path) -> None:
    stop, ready = StopSwitch(30), tmp_path / "ready"
    text = f"trap 'echo ended; exit' TERM; echo begun; touch {ready}; while :; do sleep 0.01; done"
    running = asyncio.create_task(ran(app, command(text), stop))
    await asyncio.to_thread(wait_until, ready.exists)
    stop.request("signal")
    stop.request("signal")
    await running
    assert kept(tmp_path, "stdout.log") == "begun\nended\n"
    lines = (await last_output(app)).lines
    assert [one.text for one in lines if one.stream == "stdout"] == ["begun", "ended"]


@pytest.mark.parametrize("mode", ["off", "lazy"])
async def test_without_files_the_last_lines_are_in_the_log(app: Onward, tmp_path: Path, mode: str) -> None:
    await ran(app, command("seq 200; exit 1", f", files={mode}"))
    with pytest.raises(FileNotFoundError):
        kept(tmp_path, "stdout.log")
    numbers = [int(one.text) for one in (await last_output(app)).lines]
    assert numbers == [*range(201 - OUTPUT_LINES_MAX, 201)]


async def test_output_is_not_written_through_a_link(app: Onward, tmp_path: Path) -> None:
    target = tmp_path / "target"
    await ran(app, command(f"ln -s {target} $ONWARD_STEP_DIR/stdout.log; echo text; exit 1"))
    assert not target.exists()
    assert [one.text for one in (await last_output(app)).lines] == ["text"], "the run lost nothing"


# -- errors of handlers --------------------------------------------------------------------------------


def deep(depth: int) -> None:
    if depth == 0:
        raise KeyError("customer")
    deep(depth - 1)


async def test_the_traceback_of_a_handler_begins_in_its_own_code(app: Onward) -> None:
    @app.handler("plain")
    def plain(step: StepContext) -> None:
        deep(1)

    @app.handler("async")
    async def awaited(step: StepContext) -> None:
        deep(1)

    nodes = "start [shape=Mdiamond]; exit [shape=Msquare]; a [type=plain]; b [type=async]"
    edges = 'start -> a; a -> b [condition="outcome=fail"]; b -> exit'
    await ran(app, f"digraph g {{ {nodes}; {edges} }}")
    outputs = [event.output for event in await events(app) if isinstance(event, StepFinished | AttemptFailed)]
    raised = [output for output in outputs if output is not None]
    assert [output.error for output in raised] == ["KeyError", "KeyError"]
    for name, output in zip(("plain", "awaited"), raised, strict=True):
        opening, first, *_, last = output.traceback.splitlines()
        assert opening == "Traceback (most recent call last):"
        assert first.endswith(f"in {name}")
        assert last == "KeyError: 'customer'"


async def test_an_isolated_function_tells_where_it_broke_and_what_it_printed(app: Onward) -> None:
    app.handler("breaks", isolated=True)(raises_a_value_error)
    await ran(app, line("type=breaks"))
    output = await last_output(app)
    assert (output.error, [one.text for one in output.lines]) == ("ValueError", ["a word before"])
    assert "in raises_a_value_error" in output.traceback.splitlines()[1]


async def test_a_long_traceback_keeps_its_end(app: Onward) -> None:
    @app.handler("wordy")
    async def wordy(step: StepContext) -> None:
        raise ValueError("x" * 20_000 + " the end")

    await ran(app, line("type=wordy"))
    traceback = (await last_output(app)).traceback
    assert traceback.startswith("… (")
    assert traceback.endswith(" the end")
    assert len(traceback) < TRACEBACK_CHARACTERS_MAX + 100


async def test_a_refusal_of_onward_itself_needs_no_traceback(app: Onward) -> None:
    await ran(app, command("true", ', tool_hooks.pre="exit 1"'))
    (failed,) = [event for event in await events(app) if isinstance(event, AttemptFailed)]
    assert failed.output is None


# -- the parts -----------------------------------------------------------------------------------------


def heard(*chunks: bytes) -> list[str]:
    output = AttemptOutput(Room())
    for chunk in chunks:
        output.hear("stdout", chunk)
    output.close()
    last = output.last()
    return [] if last is None else [one.text for one in last.lines]


def test_lines_are_put_together_however_they_come() -> None:
    assert heard(b"a", b"b\nc", b"\n\xc3", b"\xa4", b"\0\n") == ["ab", "c", "ä\ufffd"]


def test_of_a_progress_bar_the_last_state_counts() -> None:
    assert heard(b"10 %\r50 %\r", b"100 %\r\n") == ["100 %"]


def test_a_line_without_end_is_bounded() -> None:
    (only,) = heard(*[b"x" * 65536] * 32)
    assert len(only) == OUTPUT_LINE_CHARACTERS_MAX
    assert only.endswith("…")


def test_nothing_printed_is_nothing_kept() -> None:
    assert heard() == []


def test_of_a_long_output_the_beginning_and_the_end_are_written(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    file = OutputFile(lambda: os.open(path, flags, 0o600), head_max=10, tail_max=5)
    file.add(b"0123456")
    assert path.read_bytes() == b"0123456"
    file.add(b"789abcdef")
    file.add(b"ghi")
    assert path.read_bytes().startswith(b"0123456789\n[onward: the output continues;")
    file.close()
    head, note, cut, tail = [part for part in path.read_text().split("\n") if part]
    assert (head, tail) == ("0123456789", "efghi")
    assert note.startswith("[onward: ")
    assert cut == "[onward: 4 bytes were left out here]"

"""Tool nodes: a command of the file, in an environment that names its step; nothing else is ever run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onward import Onward
from onward.model.run import Run, RunStatus
from tests.conformance.drafts import creation


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Onward]:
    async with Onward(str(tmp_path / "runs.db")) as app:
        yield app


async def ran(app: Onward, attributes: str, **inputs: str) -> Run:
    ends = "start [shape=Mdiamond]; exit [shape=Msquare]"
    source = f"digraph tool {{ {ends}; t [shape=parallelogram, {attributes}]; start -> t -> exit }}"
    return await app.run(await app.pipeline(source), run_id="run", inputs=inputs)


async def test_the_output_of_a_command_is_in_the_context(app: Onward) -> None:
    """D45: the command succeeds, and what it printed is `tool.output`."""
    run = await ran(app, 'tool_command="printf hello"')
    assert (run.status, run.context["tool.output"]) == (RunStatus.COMPLETED, "hello")


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo PASS", "PASS"),
        ("printf 'PASS\\\\r\\\\n'", "PASS"),
        ("printf 'a\\\\nb\\\\n\\\\n'", "a\nb\n"),
        ("printf 'a\\\\r'", "a\r"),
        ("printf ''", ""),
    ],
)
async def test_the_newline_that_ends_the_output_is_not_part_of_it(
    app: Onward, command: str, output: str
) -> None:
    assert (await ran(app, f'tool_command="{command}"')).context["tool.output"] == output


async def test_a_condition_sees_what_echo_says(app: Onward) -> None:
    source = """digraph g { start; exit; test [shape=parallelogram, tool_command="echo PASS"]
    start -> test; test -> exit [condition="context.tool.output=PASS"] }"""
    assert (await app.run(await app.pipeline(source))).status is RunStatus.COMPLETED


async def test_a_run_from_before_keeps_the_newline_in_its_tools_output(app: Onward, tmp_path: Path) -> None:
    """Its conditions were written for it, and so were those of the run that its restart creates."""
    ledger, two = tmp_path / "ledger", 'context.tool.output{}\\"2\\n\\"'
    source = f"""digraph g {{ max_restarts=1; start; exit
    count [shape=parallelogram, tool_command="echo x >> {ledger}; grep -c x {ledger}"]
    start -> count; count -> exit [condition="{two.format("=")}"]
    count -> count [condition="{two.format("!=")}", loop_restart=true] }}"""
    pipeline, engine = await app.pipeline(source), await app.engine()
    blobs = {pipeline.hash: source.encode()}
    write, _ = creation("old", pipeline="g", pipeline_hash=pipeline.hash, blobs=blobs)
    await engine.store.log.create(write)
    ended = await app.resume("old")
    assert (ended.status, ended.restart_of) == (RunStatus.COMPLETED, "old")
    assert ended.context["tool.output"] == "2\n"


async def test_a_command_that_fails_fails_its_step_with_its_exit_code(app: Onward) -> None:
    """D45."""
    run = await ran(app, 'tool_command="echo oh no >&2; exit 3"')
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "exit code 3" in run.detail


async def test_a_tool_without_a_command_fails_where_the_app_lets_it_run(app: Onward) -> None:
    app.severity("tool_command", "warning")
    run = await ran(app, 'label="nothing to do"')
    assert run.status is RunStatus.FAILED
    assert "tool_command" in run.detail


async def test_a_command_knows_which_step_it_is(app: Onward) -> None:
    names = ("ONWARD_RUN_ID", "ONWARD_STEP", "ONWARD_ATTEMPT", "ONWARD_IDEMPOTENCY_KEY")
    printed = " ".join(f"${name}" for name in names)
    run = await ran(app, f'tool_command="echo {printed}"')
    assert run.context["tool.output"].split() == ["run", "t#1", "1", "run/t#1"]


async def test_nothing_from_the_context_is_spliced_into_a_command(app: Onward) -> None:
    run = await ran(app, "tool_command=\"printf '%s' '$name {name} ${context.name}'\"", name="; touch owned")
    assert run.context["tool.output"] == "$name {name} ${context.name}"


async def test_a_command_that_takes_too_long_is_ended(app: Onward) -> None:
    run = await ran(app, 'timeout=100ms, tool_command="sleep 30"')
    assert run.status is RunStatus.FAILED
    assert "timed out after 0.1 s" in run.detail

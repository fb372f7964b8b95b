"""What a step leaves on disk, and the one file that is taken from there."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from onward import Onward, Result, RunStatus, StepContext
from onward.engine.files.receipts import rebuild
from onward.engine.files.run_files import RunFiles
from onward.entry import Directory
from onward.errors import InvalidInput, InvalidPipeline
from onward.handlers.room import AUTOMATIC
from onward.model.events import StepFinished
from onward.receipts.folder import Folder
from onward.receipts.run_directory import Homes
from onward.store.codec import unseal
from tests.world import World, line

SMOKE = """
digraph smoke {
  goal = "Make it work"
  start [shape=Mdiamond]
  done [shape=Msquare]
  plan [prompt="Plan how to: $goal"]
  implement [prompt="Do as planned: $goal", goal_gate=true]
  review [prompt="Look at what was done for: $goal"]
  start -> plan -> implement
  implement -> review [condition="outcome=success"]
  implement -> plan [condition="outcome=fail"]
  review -> done [condition="outcome=success"]
  review -> implement [condition="outcome=fail"]
}
"""


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Onward]:
    app = Onward(str(tmp_path / ".onward" / "onward.db"))
    yield app
    await app.close()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / ".onward" / "runs" / "run"


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def tree(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()
    }


async def run_of(app: Onward, source: str, **how: Any) -> Any:
    return await app.run(await app.pipeline(source), run_id="run", **how)


def tool(command: str, more: str = "") -> str:
    quoted = command.replace("\\", "\\\\").replace('"', '\\"')
    return line("a", a=f'shape=parallelogram, tool_command="{quoted}" {more}')


def status(**fields: Any) -> str:
    """A command that writes a status file."""
    return f"printf '%s' '{json.dumps(fields)}' > \"$ONWARD_STEP_DIR/status.json\""


async def test_sm_the_smoke_test_of_the_dialect(app: Onward, run_dir: Path) -> None:
    """SM: five nodes, six edges, a goal gate; every agent leaves its three files, and the end is the exit."""
    app.files = "full"
    pipeline = await app.pipeline(SMOKE)
    assert (len(pipeline.graph.nodes), len(pipeline.graph.edges)) == (5, 6)
    assert pipeline.graph.goal == "Make it work"
    run = await app.run(pipeline, run_id="run", simulate=True)
    assert run.status is RunStatus.COMPLETED
    assert run.outcomes["implement"] == "success", "the gate is met"
    for node in ("plan", "implement", "review"):
        assert (run_dir / node / "1" / "prompt.md").read_text().endswith(": Make it work")
        assert (run_dir / node / "1" / "response.md").read_text() == f"[simulated] {node} done"
        assert read(run_dir / node / "1" / "status.json")["outcome"] == "success"
    checkpoint = read(run_dir / "checkpoint.json")
    assert checkpoint["current_node"] == "done"
    assert checkpoint["completed_nodes"] == ["start", "plan", "implement", "review", "done"]


async def test_files_made_from_the_log_are_those_that_were_left(
    app: Onward, run_dir: Path, tmp_path: Path
) -> None:
    """Lazy steps lose nothing: what is made on demand is byte for byte what full ones write."""
    app.files = "full"
    script = {
        "implement": [{"status": "fail", "text": "no"}, {"text": "x" * 10_000}],
        "plan": [{"text": "p"}],
    }
    run = await run_of(app, SMOKE.replace("goal_gate=true", "goal_gate=true, max_retries=0"), simulate=script)
    assert run.status is RunStatus.COMPLETED
    engine = await app.engine()
    written = await rebuild(engine.store, engine.sources, run, Folder(str(tmp_path / "again")), ())
    assert tree(tmp_path / "again") == tree(run_dir)
    assert len(written) == len(tree(run_dir))
    assert read(run_dir / "implement" / "1" / "status.json")["failure_reason"] == "no"
    assert (run_dir / "implement" / "2" / "response.md").read_text() == "x" * 10_000


async def test_the_run_has_a_manifest_and_a_checkpoint_by_the_names_of_the_dialect(
    app: Onward, run_dir: Path
) -> None:
    """D50."""
    run = await run_of(app, tool("echo hello").replace("digraph line {", 'digraph line { goal="g";'))
    manifest, checkpoint = read(run_dir / "manifest.json"), read(run_dir / "checkpoint.json")
    assert {key: manifest[key] for key in ("name", "goal", "run_id")} == {
        "name": "line",
        "goal": "g",
        "run_id": "run",
    }
    assert manifest["pipeline_hash"] == run.pipeline_hash
    assert manifest["start_time"].endswith("Z")
    assert list(checkpoint) == [
        "timestamp",
        "current_node",
        "completed_nodes",
        "node_retries",
        "context",
        "logs",
    ]
    assert checkpoint["completed_nodes"] == ["start", "a", "exit"]
    assert checkpoint["context"]["tool.output"] == "hello"
    assert checkpoint["logs"] == ["start#1: success", "a#1: success", "exit#1: success"]


@pytest.mark.parametrize("mode", [None, "full"])
async def test_a_run_from_the_start_straight_to_the_exit_leaves_its_files(
    app: Onward, run_dir: Path, mode: str | None
) -> None:
    """No step asks for a directory, and still the run has one."""
    app.files = mode
    run = await run_of(app, "digraph line { start; exit; start -> exit }")
    assert run.status is RunStatus.COMPLETED
    assert read(run_dir / "manifest.json")["run_id"] == "run"
    assert read(run_dir / "checkpoint.json")["completed_nodes"] == ["start", "exit"]
    again = Folder(str(run_dir.parent / "again"))
    engine = await app.engine()
    await rebuild(engine.store, engine.sources, run, again, ())
    assert tree(run_dir.parent / "again") == tree(run_dir)


@pytest.mark.parametrize("mode", ["lazy", "off"])
async def test_a_run_without_steps_leaves_nothing_if_no_files_are_wanted(
    app: Onward, run_dir: Path, mode: str
) -> None:
    app.files = mode
    await run_of(app, "digraph line { start; exit; start -> exit }")
    assert not run_dir.parent.exists()


async def test_function_and_simulated_steps_touch_no_disk(app: Onward, run_dir: Path) -> None:
    @app.handler("work")
    def work(step: StepContext) -> str:
        return "done"

    run = await run_of(app, line("a", "b", a="type=work"), simulate=True, real_tools=True)
    assert run.status is RunStatus.COMPLETED
    assert not run_dir.parent.exists()


async def test_d40_an_agent_that_is_a_function_leaves_prompt_and_response(app: Onward, run_dir: Path) -> None:
    """D40."""

    @app.handler("codergen")
    async def agent(step: StepContext) -> str | None:
        return "an answer " * 100 if step.node.id == "a" else None

    await run_of(
        app,
        'digraph p { goal="the goal"; start [shape=Mdiamond]; exit [shape=Msquare]; '
        'a [prompt="Reach $goal"]; b [label="Rest"]; start -> a -> b -> exit }',
    )
    assert (run_dir / "a" / "1" / "prompt.md").read_text() == "Reach the goal"
    assert (run_dir / "a" / "1" / "response.md").read_text() == "an answer " * 100
    assert (run_dir / "b" / "1" / "prompt.md").read_text() == "Rest"
    assert not (run_dir / "b" / "1" / "response.md").exists()


async def test_d24_every_step_with_an_effect_has_its_status(app: Onward, run_dir: Path) -> None:
    """D24."""

    @app.handler("codergen")
    async def agent(step: StepContext) -> Result:
        step.log("a line")
        return Result(
            preferred_label="Go", suggested_next_ids=("exit",), notes="n", context_updates={"k": [1]}
        )

    await run_of(app, line("a"))
    assert read(run_dir / "a" / "1" / "status.json") == {
        "outcome": "success",
        "preferred_label": "Go",
        "suggested_next_ids": ["exit"],
        "context_updates": {"k": [1]},
        "notes": "n",
    }
    assert read(run_dir / "checkpoint.json")["logs"] == [
        "start#1: success",
        "a#1: a line",
        "a#1: success: n",
        "exit#1: success",
    ]


async def test_d52_nothing_is_overwritten_by_another_visit_or_attempt(tmp_path: Path, world: World) -> None:
    """D52."""

    async def answer(step: StepContext) -> Result:
        label = "again" if step.step == "a#1" else "on"
        return Result(response=f"{step.step} {step.attempt}", preferred_label=label)

    source = (
        "digraph p { start [shape=Mdiamond]; exit [shape=Msquare]; "
        'a [prompt="p", max_retries=1]; start -> a; a -> a [label="again"]; a -> exit [label="on"] }'
    )
    process = await world.process(
        {"a": [Result.retry("not yet"), answer]},
        files=lambda store: RunFiles(str(tmp_path), store.identity, warn=pytest.fail),
    )
    assert (await process.start(source)).status is RunStatus.COMPLETED
    visits = tmp_path / "run" / "a"
    assert read(visits / "1" / "status.json")["failure_reason"] == "not yet"
    assert (visits / "1" / "attempt-2" / "response.md").read_text() == "a#1 2"
    assert (visits / "2" / "response.md").read_text() == "a#2 1"
    assert {str(file.relative_to(visits).parent) for file in visits.rglob("prompt.md")} == {
        "1",
        "1/attempt-2",
        "2",
    }


async def test_a_step_in_a_branch_has_its_files_below_the_branch(tmp_path: Path, world: World) -> None:
    """Also what it only added to; and what is made from the log is the same."""

    async def add(step: StepContext) -> Result:
        return Result(context_updates={"seen": [*step.get("seen"), step.node.id]}, response=step.step)

    source = (
        "digraph p { start [shape=Mdiamond]; exit [shape=Msquare]; fan [shape=component]; "
        'join [shape=tripleoctagon]; lint [prompt="l"]; check [prompt="c"]; '
        "start -> fan; fan -> lint -> join; fan -> check -> join; join -> exit }"
    )
    process = await world.process(
        {"lint": [add], "check": [add]},
        files=lambda store: RunFiles(str(tmp_path / "runs"), store.identity, warn=pytest.fail),
    )
    run = await process.start(source, inputs={"seen": ["start"]})
    assert run.status is RunStatus.COMPLETED
    directory = tmp_path / "runs" / "run"
    for node in ("lint", "check"):
        lies = directory / f"fan-1.{node}" / node / "1"
        assert read(lies / "status.json")["context_updates"] == {"seen": ["start", node]}
        assert (lies / "response.md").read_text() == f"fan#1.{node}/{node}#1"
    again = Folder(str(tmp_path / "again"))
    await rebuild(process.store, process.engine.sources, run, again, ())
    assert tree(tmp_path / "again") == tree(directory)


@pytest.mark.parametrize("mode", ["lazy", "off"])
async def test_a_graph_says_what_its_steps_leave(app: Onward, run_dir: Path, mode: str) -> None:
    source = tool('test -z "$ONWARD_STEP_DIR"').replace("digraph line {", f"digraph line {{ files={mode};")
    assert (await run_of(app, source)).status is RunStatus.COMPLETED
    assert tree(run_dir) == {}


async def test_a_mode_that_there_is_not_is_refused(app: Onward) -> None:
    with pytest.raises(InvalidPipeline, match=r"files of the graph is 'some'.*write one of full, lazy, off"):
        await app.pipeline("digraph { files=some; start; exit; start -> exit }")
    with pytest.raises(InvalidInput, match="write one of full, lazy, off"):
        Onward(files="some")


async def test_files_of_a_node_that_are_not_a_mode_change_nothing(app: Onward, run_dir: Path) -> None:
    """Other programs list files there."""
    await run_of(app, tool("true", more=', files="main.py"'))
    assert (run_dir / "a" / "1" / "status.json").exists()


async def test_a_lazy_step_has_a_directory_when_it_asks_and_none_when_files_are_off(
    app: Onward, run_dir: Path
) -> None:
    @app.handler("work")
    def work(step: StepContext) -> dict[str, Any]:
        if step.directory is not None:
            report(step, {"outcome": "partial_success", "notes": "half"})
        return {"directory": step.directory, "run_directory": step.run_directory}

    run = await run_of(app, line("a", "b", a="type=work", b='type=work, files="off"'))
    assert run.status is RunStatus.COMPLETED
    assert (run.outcomes["a"], run.outcomes["b"]) == ("partial_success", "success")
    assert read(run_dir / "a" / "1" / "status.json")["context_updates"]["directory"] == str(
        run_dir / "a" / "1"
    )
    assert run.context["directory"] is None


# -- status.json from outside ------------------------------------------------------------------------


async def test_the_file_of_a_tool_decides_over_exit_code_zero(app: Onward, run_dir: Path) -> None:
    command = status(outcome="success", preferred_next_label="left", context_updates={"x": 1}, notes="told")
    source = (
        "digraph p { start [shape=Mdiamond]; exit [shape=Msquare]; a [shape=parallelogram, tool_command="
        + json.dumps(command)
        + '];  b [files=off, type=work]; start -> a; a -> exit [label="right"]; '
        'a -> b [label="left"]; b -> exit }'
    )

    @app.handler("work")
    def work(step: StepContext) -> dict[str, Any]:
        return {"seen": step.get("x")}

    run = await run_of(app, source)
    assert run.context["seen"] == 1
    assert read(run_dir / "a" / "1" / "status.json")["preferred_label"] == "left"
    assert read(run_dir / "a" / "1" / "status.json")["notes"] == "told"


async def test_a_file_that_says_fail_fails_the_step(app: Onward) -> None:
    run = await run_of(app, tool(status(outcome="fail", notes="the tests are red")))
    assert (run.status, run.detail) == (RunStatus.FAILED, "step a#1: the tests are red")


async def test_a_failure_of_the_command_stays_one_whatever_the_file_says(app: Onward) -> None:
    run = await run_of(app, tool(status(outcome="success") + "; exit 3"))
    assert (run.status, run.detail) == (RunStatus.FAILED, "step a#1: exit code 3")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo nonsense > $ONWARD_STEP_DIR/status.json", "does not say how the step ended"),
        ('echo \'{"outcome":"great"}\' > $ONWARD_STEP_DIR/status.json', "Invalid enum value 'great'"),
        ("ln -s /etc/hostname $ONWARD_STEP_DIR/status.json", "is not a plain file"),
        ("mkfifo $ONWARD_STEP_DIR/status.json", "is not a plain file"),
    ],
)
async def test_a_malformed_file_fails_the_attempt_and_is_named(
    app: Onward, run_dir: Path, command: str, why: str
) -> None:
    run = await run_of(app, tool(command))
    assert run.status is RunStatus.FAILED
    assert str(run_dir / "a" / "1" / "status.json") in run.detail
    assert why in run.detail


def report(step: StepContext, written: dict[str, Any]) -> None:
    assert step.directory is not None
    Path(step.directory, "status.json").write_text(json.dumps(written))


def agent_that(app: Onward, returned: Callable[[], Any], written: dict[str, Any] | None) -> None:
    @app.handler("codergen")
    async def agent(step: StepContext) -> Any:
        if written is not None:
            report(step, written)
        return returned()


@pytest.mark.parametrize(
    ("returned", "outcome"),
    [
        (lambda: "text", "partial_success"),
        (lambda: None, "partial_success"),
        (lambda: {"a": 1}, "partial_success"),
        (lambda: Result.success(), "success"),
    ],
    ids=["text", "nothing", "updates", "result"],
)
async def test_the_file_of_an_agent_decides_over_anything_but_a_result(
    app: Onward, returned: Callable[[], Any], outcome: str
) -> None:
    agent_that(app, returned, {"outcome": "partial_success"})
    run = await run_of(app, line("a"))
    assert run.outcomes["a"] == outcome


@pytest.mark.parametrize(
    ("attrs", "returned", "written", "notes"),
    [
        ("auto_status=true", "text", None, AUTOMATIC),
        ("auto_status=true, files=off", "text", None, AUTOMATIC),
        ("auto_status=true", "text", {"outcome": "success", "notes": "mine"}, "mine"),
        ("auto_status=true", Result.success("said"), None, "said"),
        ("", "text", None, ""),
    ],
    ids=["automatic", "without files", "reported", "result", "plain"],
)
async def test_an_automatic_status_is_noted_as_such(
    app: Onward, attrs: str, returned: Any, written: dict[str, Any] | None, notes: str
) -> None:
    agent_that(app, lambda: returned, written)
    run = await run_of(app, line("a", a=attrs))
    assert run.status is RunStatus.COMPLETED
    events = [unseal(record) for record in await (await app.engine()).journal.read("run")]
    (told,) = [e.outcome.notes for e in events if isinstance(e, StepFinished) and e.step == "a#1"]
    assert told == notes


async def test_files_that_a_tool_puts_into_its_artifacts_become_artifacts(app: Onward, run_dir: Path) -> None:
    command = (
        "mkdir -p $ONWARD_STEP_DIR/artifacts/sub; printf one > $ONWARD_STEP_DIR/artifacts/a.txt; "
        'printf two > "$ONWARD_STEP_DIR/artifacts/sub/b c.txt"'
    )
    run = await run_of(app, tool(command))
    assert {id: artifact.name for id, artifact in run.artifacts.items()} == {
        "a.txt": "a.txt",
        "sub/b c.txt": "b c.txt",
    }
    assert (run_dir / "artifacts" / "a.txt").read_text() == "one"
    assert (run_dir / "artifacts" / "sub%2Fb%20c.txt").read_text() == "two"


async def test_a_link_among_the_artifacts_fails_the_attempt(app: Onward) -> None:
    command = "mkdir $ONWARD_STEP_DIR/artifacts; ln -s /etc/hostname $ONWARD_STEP_DIR/artifacts/x"
    run = await run_of(app, tool(command))
    assert run.status is RunStatus.FAILED
    assert "artifacts/x is not a plain file" in run.detail


# -- what may be in the way --------------------------------------------------------------------------


async def test_a_stale_status_in_the_place_of_a_new_step_does_not_count(app: Onward, run_dir: Path) -> None:
    """A directory of the same name from another life, with or without a manifest, is left alone."""
    for where in ("a/1", "a/1/artifacts"):
        (run_dir / where).mkdir(parents=True)
    (run_dir / "a" / "1" / "status.json").write_text('{"outcome":"fail"}')
    (run_dir / "a" / "1" / "artifacts" / "old").write_text("old")
    run = await run_of(app, tool("true"))
    assert (run.status, dict(run.artifacts)) == (RunStatus.COMPLETED, {})
    assert read(run_dir / "a" / "1" / "status.json") == {"outcome": "fail"}
    (own,) = run_dir.parent.glob("run.of-*")
    assert read(own / "a" / "1" / "status.json")["outcome"] == "success"


async def test_a_step_cannot_prepare_the_next_attempts_directory(app: Onward, run_dir: Path) -> None:
    planted = "$ONWARD_STEP_DIR/attempt-2"
    command = (
        f'[ $ONWARD_ATTEMPT = 2 ] || {{ mkdir {planted}; echo \'{{"outcome":"fail"}}\' > '
        f"{planted}/status.json; exit 1; }}"
    )
    run = await run_of(app, tool(command, ", max_retries=1, retry_policy=linear"))
    assert run.status is RunStatus.COMPLETED
    assert read(run_dir / "a" / "1" / "attempt-2" / "status.json")["outcome"] == "success"
    assert read(run_dir / "a" / "1" / "attempt-2.before-1" / "status.json") == {"outcome": "fail"}


@pytest.mark.parametrize("later", ["", "type=work"], ids=["agents", "functions"])
async def test_k23_a_link_that_a_step_puts_in_the_way_leads_nowhere(
    tmp_path: Path, world: World, later: str
) -> None:
    """The run goes on without files, says so once, and nothing is written through the link. K23."""
    elsewhere, warnings = tmp_path / "elsewhere", list[str]()
    elsewhere.mkdir()
    runs = tmp_path / "runs"

    async def plant(step: StepContext) -> Result:
        os.symlink(elsewhere, Path(str(step.run_directory), "b"))
        os.symlink(elsewhere, Path(str(step.run_directory), "c"))
        return Result.success()

    process = await world.process(
        {"a": [plant]},
        files=lambda store: RunFiles(str(runs), store.identity, mode="full", warn=warnings.append),
    )
    run = await process.start(line("a", "b", "c", "d", b=later, c=later, d=later))
    assert run.status is RunStatus.COMPLETED
    assert list(elsewhere.iterdir()) == []
    assert [warning.partition(" is not a directory")[0].rpartition("/")[2] for warning in warnings] == [
        "b",
        "c",
    ]
    assert read(runs / "run" / "d" / "1" / "status.json")["outcome"] == "success"
    assert read(runs / "run" / "checkpoint.json")["current_node"] == "exit"


async def test_a_full_disk_costs_a_warning_and_no_step(tmp_path: Path, world: World) -> None:
    class FullDisk(Homes):
        __slots__ = ()

        def _open(self, *where: Any, **how: Any) -> Directory:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        @property
        def plain(self) -> Folder:
            return self

    warnings: list[str] = []

    def files(store: Any) -> RunFiles:
        made = RunFiles(str(tmp_path / "runs"), store.identity, mode="full", warn=warnings.append)
        made.folder = FullDisk(made.folder.root, made.folder.identity)
        return made

    process = await world.process(files=files)
    run = await process.start(line("a", "b"))
    assert run.status is RunStatus.COMPLETED
    assert len(warnings) == 1
    assert "cannot be written: No space left on device. The run continues without them" in warnings[0]
    assert await process.completed() == ["start#1", "a#1", "b#1", "exit#1"]


async def test_a_resumed_run_keeps_its_directory_up_to_date(tmp_path: Path, world: World) -> None:
    """Also when nothing that has files of its own is left to do."""

    def files(store: Any) -> RunFiles:
        return RunFiles(str(tmp_path / "runs"), store.identity, warn=pytest.fail)

    source = line("a", "b", "c", a="", b="shape=hexagon", c="type=work")
    first = await world.process(files=files)
    assert (await first.start(source)).status is RunStatus.WAITING
    assert read(tmp_path / "runs" / "run" / "checkpoint.json")["current_node"] == "a"
    second = await world.process(files=files)
    await second.engine.answer("run", "c", by="me")
    checkpoint = read(tmp_path / "runs" / "run" / "checkpoint.json")
    assert checkpoint["completed_nodes"] == ["start", "a", "b", "c", "exit"]


async def test_files_are_not_made_where_something_else_lies(app: Onward, tmp_path: Path) -> None:
    run = await run_of(app, line("a"), simulate=True)
    engine = await app.engine()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("n")
    with pytest.raises(InvalidInput, match="contains files that do not belong to this run"):
        await rebuild(engine.store, engine.sources, run, Folder(str(tmp_path / "mine")), ())
    assert os.listdir(tmp_path / "mine") == ["notes"]

"""Every run that an earlier version left can be continued, and no finished step is executed again."""

from __future__ import annotations

from typing import Any

from onward.engine.stop import StopSwitch
from tests.cli.shell import Shell
from tests.world import Process, World


def on_way(runs: dict[str, Any], *ways: str) -> dict[str, Any]:
    return {run_id: run for run_id, run in runs.items() if run["way"] in ways}


async def stands(process: Process, run_id: str) -> tuple[str, list[str]]:
    """A run's status and finished steps."""
    return (await process.load(run_id)).run.status.value, await process.completed(run_id)


async def test_every_stopped_run_is_continued_and_no_finished_step_is_repeated(
    world: World, process: Process, runs: dict[str, Any]
) -> None:
    for run_id, left in on_way(runs, "resume").items():
        before = len(world.ledger.steps)
        await process.resume(run_id, **left["how"])
        status, finished = await stands(process, run_id)
        assert (run_id, status) == (run_id, left["ends"])
        assert (run_id, world.ledger.steps[before:]) == (run_id, left["executes"])
        assert finished[: len(left["finished"])] == left["finished"]
        assert len({*finished}) == len(finished)
        assert await process.is_sound(run_id)
    (child,) = [
        run_id for run_id, left in runs.items() if run_id.startswith("01") and left["status"] == "running"
    ]
    assert (await stands(process, child))[0] == "completed", "the manager's child ended with it"


async def test_every_open_gate_can_be_answered(world: World, process: Process, runs: dict[str, Any]) -> None:
    for run_id, left in on_way(runs, "answer").items():
        before = len(world.ledger.steps)
        for gate, answer in left["how"]["answers"]:
            await process.engine.answer(run_id, answer, by="ann", gate=gate)
        assert (run_id, (await stands(process, run_id))[0]) == (run_id, left["ends"])
        assert (run_id, world.ledger.steps[before:]) == (run_id, left["executes"])
        assert await process.is_sound(run_id)


async def test_a_worker_drives_what_is_due(world: World, process: Process, runs: dict[str, Any]) -> None:
    await process.engine.sweep()
    while (taken := await process.engine.take(StopSwitch())) is not None:
        await taken[1]
    for run_id, left in on_way(runs, "worker").items():
        assert (run_id, (await stands(process, run_id))[0]) == (run_id, left["ends"])
        executed = [call.step for call in world.ledger.calls if call.run_id == run_id]
        assert (run_id, executed) == (run_id, left["executes"])
        assert await process.is_sound(run_id)


def test_commands_continue_runs_of_shell_steps_and_simulations(shell: Shell, runs: dict[str, Any]) -> None:
    expected: list[str] = []
    for run_id, left in on_way(runs, "command").items():
        done = shell.inside(*left["how"]["words"])
        assert (run_id, done.code, done.err) == (run_id, 0, "")
        assert shell.read(run_id)["status"] == left["ends"]
        expected += left["executes"]
        assert (run_id, shell.ledger) == (run_id, expected)

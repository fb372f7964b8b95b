"""Forgetting beside real workers, and killed in the middle: what anybody needs is never gone."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from onward.model.events import RunCompleted, RunPaused
from onward.operations.here.verify import verify_run
from onward.store.codec import VALUE_BYTES_MAX
from onward.store.port.runs import RunQuery
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.chance import places
from tests.cli.nursery import INHERITED
from tests.cli.nursery import start as start_python
from tests.cli.shell import GATE, Shell, pipeline
from tests.conformance.drafts import Draft, fork, held, stepped

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
STRIDE = 7
LARGE = "x" * VALUE_BYTES_MAX * 2
GONE = {f"gone-{number}" for number in range(5)}
NEEDED = {"parent", "fork", "paused"}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "onward.db")
    url: str = request.getfixturevalue("postgres_emptied_url")
    return url


async def _ended(store: Store, run: Draft) -> Draft:
    write, over = run.then(RunCompleted())
    await store.log.append(write, run.lease)
    return over


async def _fill(store: Store, runs: Path) -> None:
    """Runs that may go, each with content, an effect and a directory; and runs that somebody needs."""
    for run_id in sorted(GONE):
        run = await stepped(store, await held(store, run_id), text=f"{run_id} {LARGE}", shared=LARGE)
        await _ended(store, run)
        await store.effects.begin(f"{run_id}/start#1", "token", at_us=1)
        await store.effects.finish(f"{run_id}/start#1", "token", b"done", at_us=2)
        (runs / run_id).mkdir(parents=True)
        said = {"run_id": run_id, "database": store.identity.name}
        (runs / run_id / "manifest.json").write_text(json.dumps(said))
    begun = await stepped(store, await held(store, "parent"), shared=LARGE)
    await _ended(store, begun)
    write, _ = fork(begun, "fork")
    await store.log.create(write, "creation")
    paused = await stepped(store, await held(store, "paused"), shared=LARGE, own=f"own {LARGE}")
    write, _ = paused.then(RunPaused(reason="operator"))
    await store.log.append(write, paused.lease)


async def _check(db: str) -> set[str]:
    """Whoever is there is whole, and whoever is needed is there; answers who is there."""
    store = await open_store(db)
    try:
        there = {listed.row.id for listed in await store.runs.list(RunQuery(limit=100))}
        assert there >= NEEDED
        for run_id in there:
            assert (await verify_run(store, run_id)).problems == ()
        for run_id in GONE:
            assert (await store.effects.find(f"{run_id}/start#1") is not None) == (run_id in there)
        return there
    finally:
        await store.close()


def _collect_and_die(db: str, runs: Path, at: int) -> tuple[int, str]:
    process = start_python(["-m", "tests.crash.forgetter", db, str(runs), str(at)], ROOT, INHERITED)
    _, errors = process.communicate()
    return process.wait(), errors.decode()


@pytest.mark.slow
async def test_a_collection_that_is_killed_anywhere_takes_nothing_that_is_needed_and_is_finished_later(
    db: str, tmp_path: Path
) -> None:
    store, runs = await open_store(db), tmp_path / "runs"
    await _fill(store, runs)
    await store.close()
    stride = STRIDE if db.endswith(".db") else 2
    kills, states = 0, set()
    for at in places(stride):
        code, errors = await asyncio.to_thread(_collect_and_die, db, runs, at)
        states.add(len(await _check(db)))
        if code == 0:
            break
        assert code == -signal.SIGKILL, errors
        kills += 1
    assert kills >= 6, "hardly anything was killed: the test proves nothing"
    assert states == {len(GONE | NEEDED), len(NEEDED)}
    assert await _check(db) == NEEDED
    assert list(runs.iterdir()) == []


@pytest.mark.slow
def test_collecting_beside_workers_disturbs_no_run(db: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, db)
    shell.write("line.dot", pipeline(("one", shell.noting()), ("two", shell.noting())))
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", "asked", "--answers", "wait").code == 75
    ids = {f"run-{number}" for number in range(8)}
    try:
        workers = [shell.start("worker") for _ in range(2)]
        for worker in workers:  # a signal that comes earlier ends it in the middle of its start
            worker.wait_for("up to 4 runs at once")
        for run_id in sorted(ids):
            assert shell.inside("submit", "line.dot", "--run-id", run_id).code == 0
        gone: set[str] = set()
        while gone != ids:
            collected = shell.inside("gc", "--keep", "0", "--json")
            assert collected.code == 0, collected.err
            gone.update(collected.json["runs"])
            assert shell.inside("verify").code == 0
        for worker in workers:
            worker.signal(signal.SIGTERM)
        assert [worker.end().code for worker in workers] == [0, 0]
    finally:
        shell.close()
    assert Counter(shell.ledger) == {"one#1": 8, "two#1": 8}
    assert shell.read("asked")["status"] == "waiting"
    assert shell.inside("answer", "asked", "Yes", "--answers", "auto").code == 0
    assert shell.inside("verify").code == 0

"""Databases of earlier versions can be looked at: they open, they are sound, and nothing in them has changed.

No test of this file changes a run, so all of them look at one copy of each database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from onward.errors import Refused
from onward.read.event_schemas import event_schemas
from onward.read.view import view_event
from onward.store.port.runs import GateQuery, RunQuery
from tests.cli.shell import Shell
from tests.golden.conftest import Restore
from tests.golden.files import unpack_sqlite
from tests.world import Process, World

RUNS_MAX = 1000
GATES = GateQuery(limit=1000)
_copies: dict[tuple[str, str], str] = {}


@pytest.fixture
def db(restore: Restore, kind: str, version: str) -> str:
    if (kind, version) not in _copies:
        _copies[kind, version] = restore(kind, version)
    return _copies[kind, version]


async def test_every_run_stands_as_it_was_left_and_is_sound(process: Process, runs: dict[str, Any]) -> None:
    listed = {one.row.id: one.row for one in await process.store.runs.list(RunQuery((), limit=RUNS_MAX))}
    assert listed.keys() == runs.keys()
    for run_id, left in runs.items():
        row, run = listed[run_id], (await process.load(run_id)).run
        assert (row.status, row.reason) == (run.status, run.reason) == (left["status"], left["reason"])
        assert await process.completed(run_id) == left["finished"]
        assert await process.is_sound(run_id)
        open_gates = {name: gate for name, gate in run.gates.items() if gate.decided is None}
        inbox = {row.gate: row for row in await process.store.gates.open(GATES) if row.run_id == run_id}
        assert {name: row.text for name, row in inbox.items()} == {
            n: gate.text for n, gate in open_gates.items()
        }
    assert await process.store.gates.open(GateQuery(limit=1)), "no run of this version asks anything"
    assert [one.run for one in (await process.store.measures.measure()).stuck] == ["queued-stuck"]


def test_every_command_that_looks_can_show_them(shell: Shell, kind: str, runs: dict[str, Any]) -> None:
    for words in (("verify",), ("stats",), ("workers",)):
        done = shell.inside(*words)
        assert (done.code, done.err) == (0, "")
    listed = shell.inside("status", "--limit", str(RUNS_MAX), "--json").json
    seen = {run_id: _as_seen(left["status"]) for run_id, left in runs.items()}
    assert {run["id"]: run["status"] for run in listed} == seen
    # Each of them once; at the second database one of each sort shows that it can be read from there too.
    shown = seen if kind == "sqlite" else {left["status"]: run_id for run_id, left in runs.items()}.values()
    assert {run_id: shell.read(run_id)["status"] for run_id in shown} == {
        run_id: seen[run_id] for run_id in shown
    }
    assert shell.log("long")


def _as_seen(status: str) -> str:
    """A run that a dead process holds is shown as what the next look for lost runs makes of it."""
    return "interrupted" if status == "running" else status


async def test_every_event_is_what_its_type_says(process: Process, runs: dict[str, Any]) -> None:
    """The types are those of the description of the HTTP API."""
    validator = jsonschema_rs.validator_for(
        {"$ref": "#/$defs/EventShown", "$defs": event_schemas("#/$defs/{name}")}
    )
    kinds = set[str]()
    for run_id in runs:
        for record in await process.log(run_id):
            kinds.add(record.kind)
            assert [error.message for error in validator.iter_errors(view_event(record))] == []
    assert len(kinds) > 20


async def test_what_is_over_cannot_be_resumed(process: Process, runs: dict[str, Any]) -> None:
    over = [run_id for run_id, left in runs.items() if left["way"] in ("none", "refused")]
    for run_id in over:
        if runs[run_id]["status"] not in ("running", "queued"):  # those belong to a manager
            with pytest.raises(Refused):
                await process.resume(run_id)


@pytest.mark.parametrize("run_id", ["held-in-doubt", "in-doubt"])
async def test_a_step_in_doubt_is_still_offered_as_one(world: World, process: Process, run_id: str) -> None:
    with pytest.raises(Refused) as refused:
        await process.resume(run_id)
    assert (refused.value.code, refused.value.details["step"]) == ("in_doubt", "pay#1")
    assert world.ledger.steps == []


async def test_effects_are_still_performed_at_most_once(process: Process) -> None:
    assert await process.engine.effect("golden/done", lambda: pytest.fail("performed again")) == {"paid": 7}
    with pytest.raises(Refused, match="golden/begun"):
        await process.engine.effect("golden/begun", lambda: pytest.fail("performed again"))


def test_all_of_it_can_be_exported_and_imported_elsewhere(shell: Shell, runs: dict[str, Any]) -> None:
    done = shell.inside("export", "--all", "--out", "all.jsonl.zst")
    assert done.code == 0, done.err
    other = Shell(shell.directory, str(shell.directory / "other.db"))
    done = other.inside("import", "all.jsonl.zst")
    assert done.code == 0, done.err
    assert other.inside("verify").out.endswith("0 problems\n")
    listed = other.inside("status", "--limit", str(RUNS_MAX), "--json").json
    assert {run["id"]: run["steps_finished"] for run in listed} == {
        run_id: len(left["finished"]) for run_id, left in runs.items()
    }


def test_receipts_of_an_older_version_are_good(version: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, unpack_sqlite(version, tmp_path))
    for run_id, steps in (("paused-signal", 3), ("completed", 5)):
        done = shell.inside("receipts", run_id, "--json")
        assert (done.code, done.err) == (0, "")
        assert [receipt["status"] for receipt in done.json["receipts"]] == ["succeeded"] * steps

"""What a status, and the reply to a decision, read of its log: only a part with an end."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from onward.engine.log import EVENT_BYTES, SNAPSHOT_BYTES_MIN
from onward.handlers.port import StepContext
from onward.machine.fold.stops import STOPS_MAX
from onward.model.result import Result
from onward.operations import requests
from onward.operations.local.operations import LocalOperations
from onward.replies.runs import RunState
from onward.store.port import log as logs
from tests.conformance.faults import Around, FaultyStore
from tests.world import Process, World

LONG = 400
LOOP = """digraph loop {{ max_visits={visits}; max_steps=5000
  start [shape=Mdiamond]; exit [shape=Msquare]; again [type=work]; hold [shape=hexagon]; last [type=work]
  start -> again; again -> again [condition="context.more=yes"]
  again -> hold [condition="context.more=no"]; hold -> last [label="go"]; last -> exit }}"""


T = TypeVar("T")


class Until:
    """A step that is done again and again, up to ten times less than its node may be visited."""

    keeps_time = False

    async def run(self, step: StepContext) -> Result:
        visits = int(step.run_id.rpartition("-")[2]) if "-" in step.run_id else 130
        return Result.success(more="yes" if step.execution < visits else "no")


@dataclass
class Meter:
    """How much of logs was read: events, and bytes with the snapshots."""

    events: int = 0
    bytes: int = 0

    def read(self, bodies: Sequence[str], snapshot: logs.Snapshot | None = None) -> None:
        self.events += len(bodies)
        self.bytes += sum(EVENT_BYTES + len(body) for body in bodies)
        self.bytes += 0 if snapshot is None else len(snapshot.body)


class Metered(Around[logs.RunLog]):
    """A log that counts what is read of it, in whatever way."""

    def __init__(self, part: logs.RunLog, store: FaultyStore, meter: Meter) -> None:
        super().__init__(part, store)
        self.meter = meter

    async def load(self, run_id: str, *, fold_version: int) -> logs.Loaded | None:
        loaded = await self.part.load(run_id, fold_version=fold_version)
        if loaded is not None:
            self.meter.read([one.body for one in loaded.tail], loaded.snapshot)
        return loaded

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[logs.StoredEvent]:
        found = await self.part.read(run_id, after=after, limit=limit)
        self.meter.read([one.body for one in found])
        return found

    async def bodies(self, run_id: str, kind: str) -> Sequence[str]:
        found = await self.part.bodies(run_id, kind)
        self.meter.read(found)
        return found

    async def control(
        self, run_id: str, *, since: int, append_id: str, decide: logs.Decide
    ) -> logs.Controlled:
        def seen(held: logs.Held, records: Sequence[logs.StoredEvent]) -> logs.Write | None:
            self.meter.read([one.body for one in records])
            return decide(held, records)

        return await self.part.control(run_id, since=since, append_id=append_id, decide=seen)


class Reader:
    """Somebody who looks at a run and decides about it, and what was read for each of that."""

    def __init__(self, process: Process, meter: Meter, run_id: str) -> None:
        self.meter, self.run_id = meter, run_id
        self.operations = LocalOperations(process.engine, process.clock)
        self.costs: dict[str, Meter] = {}

    async def status(self, name: str) -> RunState:
        return await self.cost(name, self.operations.look.get_run(requests.GetRun(run=self.run_id)))

    async def cost(self, name: str, asked: Awaitable[T]) -> T:
        self.meter.events = self.meter.bytes = 0
        answer = await asked
        self.costs[name] = replace(self.meter)
        return answer


async def looked_at(process: Process, meter: Meter, visits: int) -> dict[str, Meter]:
    """What statuses and decisions read of a run of so many visits: waiting, queued, paused, cancelled."""
    run_id = f"visits-{visits}"
    await process.start(LOOP.format(visits=visits + 10), run_id)
    reader = Reader(process, meter, run_id)
    decide = reader.operations.decide
    waiting = await reader.status("waiting")
    assert (waiting["status"], waiting["steps_finished"]) == ("waiting", visits + 1)
    await reader.cost("answer", decide.answer_gate(requests.AnswerGate(run=run_id, by="ines", choice="go")))
    await reader.status("queued")
    await reader.cost("pause", decide.pause_run(requests.PauseRun(run=run_id, by="ines")))
    await reader.status("paused")
    await reader.cost("dismiss", decide.dismiss_run(requests.DismissRun(run=run_id, by="ines")))
    await reader.cost("resume", decide.resume_run(requests.ResumeRun(run=run_id, by="ines")))
    await reader.status("resumed")
    await reader.cost("cancel", decide.cancel_run(requests.CancelRun(run=run_id, by="ines")))
    over = await reader.status("cancelled")
    assert [stop["by"] for stop in over["stops"]] == ["ines"]
    listing = reader.operations.lists.list_runs(requests.ListRuns(run=run_id, completed=True))
    (listed,) = (await reader.cost("listed", listing))["runs"]
    assert listed["completed"] == over["completed"] == waiting["completed"]
    return reader.costs


async def test_a_status_and_a_decision_read_only_what_follows_the_newest_snapshot(world: World) -> None:
    """S3-1: so they read no more of a long run than of a short one. The log has 150 KB."""
    meter = Meter()
    process = await world.process(
        handlers={"work": Until()},
        wrap=partial(FaultyStore, log=lambda part, store: Metered(part, store, meter)),
    )
    for name, cost in (await looked_at(process, meter, LONG)).items():
        loads = 2 if name == "cancel" else 1  # which also looks for runs that it leaves without a manager
        assert 0 < cost.bytes <= loads * 1.1 * SNAPSHOT_BYTES_MIN, name


async def test_long_lists_of_a_status_are_cut_and_say_how_long_they_are(world: World) -> None:
    process = await world.process(handlers={"work": Until()})
    operations = LocalOperations(process.engine, process.clock)
    await process.start(LOOP.format(visits=140), "run")
    await operations.decide.answer_gate(requests.AnswerGate(run="run", choice="go", by="ines"))
    for _ in range(STOPS_MAX + 5):
        await operations.decide.pause_run(requests.PauseRun(run="run", by="ines"))
        await operations.decide.resume_run(requests.ResumeRun(run="run", by="otto"))
    shown = await operations.look.get_run(requests.GetRun(run="run"))
    assert shown["steps_finished"] == 131
    assert shown["completed"] == [f"again#{number}" for number in range(31, 131)]
    assert (len(shown["stops"]), shown["stops_count"]) == (STOPS_MAX, STOPS_MAX + 5)
    assert {stop["by"] for stop in shown["stops"]} == {"otto"}
    page = await operations.look.show_run(requests.ShowRun(run="run"))
    assert page["completed"] == ["start#1", *(f"again#{number}" for number in range(1, 131))]

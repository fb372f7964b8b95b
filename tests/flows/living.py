"""Flows at a database: processes that serve them, and one life of a run after the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

from onward.engine.stop import StopSwitch
from onward.errors import RunNotFound
from onward.flows.define import Bound, Flow
from onward.flows.handler import FlowHandler
from onward.model.call import CallFinished, CallStatus
from onward.model.run import Run, RunStatus
from tests.world import Process, World


class Outside:
    """What the steps of a test did, which no process forgets."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def do(self, what: str) -> int:
        """Note that it was done; how often by now."""
        self.done[what] += 1
        return self.done[what]


async def serving(world: World, *flows: Flow[..., Any], **how: Any) -> Process:
    """A process that serves these flows."""
    return await world.process(handlers={flow.kind: FlowHandler(flow) for flow in flows}, **how)


async def begin(process: Process, bound: Bound[Any], run_id: str = "run", **how: Any) -> Run:
    """Start a run of a flow, and execute it until it stops."""
    return await process.start(bound.flow.source, run_id, inputs=bound.inputs, **how)


async def live(
    process: Process, bound: Bound[Any], run_id: str = "run", stop: StopSwitch | None = None
) -> Run:
    """Bring a run to its end from whatever state it is in: every question gets a yes, and time passes."""
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        run = await begin(process, bound, run_id)
    while not run.is_final:
        assert run.reason != "flow_changed", run.detail
        asked = [name for name, gate in run.gates.items() if gate.decided is None]
        if run.status is RunStatus.WAITING and asked:
            run = (await process.engine.answer(run_id, "yes", by="ann", gate=asked[0])).run
            continue
        if run.status is RunStatus.WAITING:
            assert run.wake_at_us is not None
            process.clock.advance(max(0, run.wake_at_us - process.clock.now_us()) / 1_000_000)
        run = await process.resume(run_id, stop=stop, take_over=run.status is RunStatus.RUNNING)
    return run


def result(run: Run) -> Any:
    """What the flow of a completed run returned, as it is stored."""
    assert run.status is RunStatus.COMPLETED, (run.status, run.reason, run.detail)
    return run.context["flow.result"]


async def called(process: Process, run_id: str = "run") -> list[str]:
    """The keys of the calls that were recorded, in order."""
    return [event.call for event in await process.events(run_id) if isinstance(event, CallFinished)]


async def answered(process: Process, run_id: str = "run") -> list[str]:
    """The keys of those that have an answer."""
    calls = [event for event in await process.events(run_id) if isinstance(event, CallFinished)]
    return [call.call for call in calls if call.status is CallStatus.OK]

"""One run, from a store: as it stands, what happened in it, its log, and its picture.

Also whether it has stopped, and waiting for that, whichever process executes it; and the limit that stopped
it, with what to raise so that it continues. `onward show` must be quick, so this imports no engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from onward.clock import Clock
from onward.draw.boxes import geometry_of
from onward.draw.scene import Trace, last_visits, make_scene, states_of, to_view
from onward.engine.control.limits import still_held
from onward.engine.journal import Journal
from onward.engine.leftovers import Leftovers, view_left
from onward.engine.log import Folded
from onward.engine.sources import Sources
from onward.errors import ArtifactNotFound, Refused, StillGoing
from onward.machine.decide.calls import is_in_doubt
from onward.machine.fold.rows import run_row
from onward.model.events import RunCreated
from onward.model.ids import display_id, is_in_step
from onward.model.row import RegisteredWorker
from onward.model.run import Run, RunStatus
from onward.model.values import WAIT
from onward.operations import requests
from onward.operations.answers import note_answer
from onward.operations.local.steps import shortened, view_artifact, view_call, view_content
from onward.read.dialect_events import Translator, in_dialect
from onward.read.log import Claim
from onward.read.lookup import (
    find_run,
    get_steps,
    is_meant,
    log_pages,
    read_checkpoints,
    read_projection,
)
from onward.read.step import read_calls, read_history
from onward.read.timeline import timeline
from onward.read.view import (
    Beside,
    known_row,
    known_ticks,
    state_of,
    view_event,
    view_limit,
    view_row,
    view_run,
    view_steps,
)
from onward.store.codec import unseal
from onward.store.port.log import RunLog
from onward.store.port.store import Store

if TYPE_CHECKING:
    from onward.engine.engine import Engine
    from onward.replies import steps as step_shapes
    from onward.replies.runs import LeftShown, LimitStop, RunNamed, RunState


STOP_POLL_S = 0.1
GOING = (RunStatus.QUEUED, RunStatus.RUNNING)
MAY_GO_ON = (RunStatus.QUEUED, RunStatus.WAITING)


async def has_stopped(store: Store, clock: Clock, run_id: str) -> bool:
    """Whether nothing more comes from a run unless someone resumes it."""
    folded = await Journal(store.log, clock).load(run_id)
    run, holder = folded.run, folded.holder
    if run.status is not RunStatus.RUNNING:
        return run.status not in MAY_GO_ON
    is_dead = holder is None or not holder.is_alive
    return is_dead and run.on_owner_loss != "requeue"


async def wait_stopped(engine: Engine, clock: Clock, wanted: str, timeout_s: float | None = None) -> Folded:
    """The run when it has stopped: at its end, at a question, or because it failed or was asked to.

    Of a run that a loop_restart ended, the run that continues it is awaited. If the process that holds it has
    died, it is stopped or requeued as its policy says, as a worker would do. StillGoing when time is over.
    """
    until_s = None if timeout_s is None else clock.awake_s() + WAIT.check(timeout_s, "timeout")
    never = asyncio.Event()
    listed = await find_run(engine.store.runs, wanted)
    while True:
        row, holder = listed.row, listed.holder
        if row.restarted_as is not None:
            listed = await find_run(engine.store.runs, row.restarted_as)
            continue
        if row.status not in GOING:
            return await engine.journal.load(row.id)
        left_s = STOP_POLL_S if until_s is None else until_s - clock.awake_s()
        if timeout_s is not None and left_s <= 0:
            raise StillGoing(row.id, row.status.value, timeout_s)
        if holder is not None and not holder.is_alive:
            await engine.sweep()
        await clock.wait_s(min(STOP_POLL_S, left_s), never)
        listed = await find_run(engine.store.runs, row.id)


async def limit_stop(store: Store, run: Run, now_us: int) -> LimitStop | None:
    """The limit that a stopped run waits for. The tables are read only for a run that waits for one."""
    shown = view_limit(run)
    if shown is None or shown["raise_to"] is not None:  # visits are in the log alone
        return shown
    held = await still_held(store, run, now_us)
    return {**shown, "raise_to": None if held is None else held.argument}


async def draw(log: RunLog, sources: Sources, folded: Folded, *, original: bool) -> step_shapes.Drawing:
    """The graph that the run has now, or with `original` the one that it began with."""
    trace, run, holder = Trace(), folded.run, folded.holder
    first: RunCreated | None = None
    async for page in log_pages(log, run.id):
        events = [unseal(record) for record in page]
        first = first or next((event for event in events if isinstance(event, RunCreated)), None)
        trace.add(events)
    defined = replace(run, pipeline_hash=first.pipeline_hash) if original and first is not None else run
    pipeline = await sources.stored(defined)
    is_at_work = holder is not None and holder.is_alive
    states = states_of(pipeline.graph, run, trace, is_at_work=is_at_work)
    shown = view_row(run_row(run), holder)
    scene = make_scene(pipeline.graph, states, title=pipeline.name)
    return {
        "pipeline": pipeline.name,
        "pipeline_hash": pipeline.hash,
        "path": pipeline.path,
        "run": {
            "id": shown["id"],
            "display_id": shown["display_id"],
            "status": shown["status"],
            "reason": shown["reason"],
            "next": shown["next"],
        },
        **to_view(scene),
        "geometry": geometry_of(scene, steps=last_visits(trace)),
    }


EVENTS_POLL_S = 0.2


async def run_state(store: Store, folded: Folded, now_us: int) -> RunState:
    """A run in full, as a decision left it."""
    note_answer(is_repeat=folded.is_repeat)
    run = folded.run
    return view_run(run_row(run), folded.holder, run, await beside_of(store, run, now_us))


async def beside_of(store: Store, run: Run, now_us: int) -> Beside:
    """What is known beside a run's state. The log is not read."""
    limit, workers = await limit_stop(store, run, now_us), await _workers(store, run)
    heads = await store.runs.heads(run.awaits) if run.awaits else {}
    return Beside(now_us, limit, workers, {id: heads[id].status for id in run.awaits if id in heads})


async def _workers(store: Store, run: Run) -> Sequence[RegisteredWorker] | None:
    """Who could take the run, if it is queued."""
    return await store.workers.read() if run.status is RunStatus.QUEUED else None


class LocalLook(msgspec.Struct, frozen=True):
    """Looks at runs of one store.

    `leftovers` says where to look for what steps in doubt left, `sources` what pipelines are prepared with.
    """

    store: Store
    clock: Clock
    leftovers: Callable[[], Leftovers]
    sources: Callable[[], Sources]

    async def get_run(self, request: requests.GetRun) -> RunState:
        """A run as it stands."""
        return await run_state(self.store, await self._load(request.run), self.clock.now_us())

    async def show_run(self, request: requests.ShowRun) -> step_shapes.RunPage:
        """All that `onward show` says about a run."""
        folded = await self._load(request.run)
        log = await read_projection(self.store.log, folded.run.id)
        is_held = folded.holder is not None and folded.holder.is_alive
        run, row = folded.run, run_row(folded.run)
        beside = await beside_of(self.store, run, self.clock.now_us())
        forks, children = await self._relatives(run.id)
        has_calls = any(step.spent is not None for step in log.steps.values()) or run.open_calls
        calls = await read_calls(self.store.log, run.id) if has_calls else ()
        states = {name: state_of(step, run, is_held=is_held) for name, step in log.steps.items()}
        ticks = known_ticks(known_row(row, folded.holder))[1]
        return {
            **view_run(row, folded.holder, run, beside),
            "completed": log.completed(),
            "steps": view_steps(log, run, is_held=is_held),
            "timeline": timeline(log, states, calls, ticks, is_held=is_held),
            "progress": await self._progress(folded, log.claim),
            "left": await self._left(folded),
            "forks": forks,
            "children": children,
        }

    async def show_step(self, request: requests.ShowStep) -> step_shapes.StepPage:
        """All that `onward show RUN STEP` says about a step."""
        from onward.operations.local.steps import StepView, served

        folded = await self._load(request.run)
        run = folded.run
        log = await read_projection(self.store.log, run.id)
        step = get_steps(log, request.step)[-1]
        is_held = folded.holder is not None and folded.holder.is_alive
        history = await read_history(self.store.log, run.id, step.step)
        node = await served(self.sources(), run, history, step.node)
        steps = (one.step for one in log.steps.values() if one.node == step.node)
        visits = [name for name in steps if not is_in_step(name)]
        view = StepView(run, step, history, node, self.leftovers().runs)
        calls = await read_calls(self.store.log, run.id, step=step.step)
        return view.page(state_of(step, run, is_held=is_held), visits, shortened(calls))

    async def _progress(self, folded: Folded, claim: Claim) -> list[step_shapes.StepProgress]:
        """How far open steps have come; a run without such a step costs nothing more."""
        if all(opened.calls is None for opened in folded.run.open_steps.values()):
            return []
        from onward.operations.local.steps import ProgressView

        return await ProgressView(self.store, self._journal, self.sources(), folded, claim).steps()

    async def _left(self, folded: Folded) -> list[LeftShown]:
        """What the steps in doubt left; a run without such a step costs nothing more."""
        if not any(is_in_doubt(opened) for opened in folded.run.open_steps.values()):
            return []
        return [view_left(left) for left in await self.leftovers().of(folded)]

    async def _relatives(
        self, run_id: str
    ) -> tuple[list[step_shapes.ForkListed], list[step_shapes.ChildListed]]:
        """The runs that came from this one: its forks, and the children that its steps manage."""
        forks: list[step_shapes.ForkListed] = []
        children: list[step_shapes.ChildListed] = []
        for listed in await self.store.runs.relatives(run_id):
            row = known_row(listed.row, listed.holder)
            about: RunNamed = {"id": row.id, "display_id": row.display_id, "status": row.status.value}
            if row.parent == run_id and row.parent_seq is not None:
                forks.append({**about, "seq": row.parent_seq})
            if row.managed_by == run_id and row.managed_step is not None:
                children.append({**about, "step": row.managed_step, "restart_of": row.restart_of})
        return forks, children

    async def read_events(
        self, request: requests.ReadEvents, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[step_shapes.EventShown]:
        """Events as they come; `stop` ends a wait for more."""
        run_id = await self._run_id(request.run)
        stop, translator = stop or asyncio.Event(), Translator(run_id) if request.dialect else None
        # A name may depend on earlier events, so a translator needs all of them.
        heard = 0 if translator else request.after
        while True:
            # Asked before reading, so that the last events of a run are read once more.
            is_over = not request.follow or await self._has_ended(run_id)
            async for page in log_pages(self.store.log, run_id, after=heard):
                heard = page[-1].seq
                for record in page:
                    shown = in_dialect(translator, record) if translator else [view_event(record)]
                    for event in shown:
                        if record.seq > request.after:
                            yield event
            if is_over or stop.is_set():
                return
            await self.clock.wait_s(EVENTS_POLL_S, stop)

    async def list_checkpoints(
        self, request: requests.ListCheckpoints
    ) -> AsyncIterator[step_shapes.Checkpoint]:
        """The checkpoints in order, one at a time: each holds a context of its own."""
        async for checkpoint in read_checkpoints(self.store.log, await self._run_id(request.run)):
            if checkpoint["seq"] > request.after:
                yield checkpoint

    async def list_artifacts(self, request: requests.ListArtifacts) -> step_shapes.ArtifactList:
        """What the run has stored so far, by id."""
        run = (await self._load(request.run)).run
        listed = [view_artifact(id, artifact) for id, artifact in sorted(run.artifacts.items())]
        return {"run": run.id, "display_id": display_id(run.id), "artifacts": listed}

    async def list_calls(self, request: requests.ListCalls) -> step_shapes.CallList:
        """Every try of every call, in the order in which they began."""
        folded = await self._load(request.run)
        run_id, holder = folded.run.id, folded.holder
        found = await read_calls(self.store.log, run_id)
        if request.step is not None:
            known = ", ".join(dict.fromkeys(call.step for call in found)) or "none"
            found = [call for call in found if is_meant(call.step, request.step)]
            if not found:
                why = f"no step {request.step!r} of this run has recorded calls; steps that have: {known}."
                raise Refused("step_without_calls", why)
        is_gone, end = holder is not None and not holder.is_alive, request.after + request.limit
        calls = [view_call(call, is_gone=is_gone) for call in found[request.after : end]]
        cursor = end if end < len(found) else None
        return {"run": run_id, "display_id": display_id(run_id), "calls": calls, "cursor": cursor}

    async def get_artifact(self, request: requests.GetArtifact) -> step_shapes.ArtifactContent:
        """One artifact, whose content is what its hash says."""
        kept = (await self._load(request.run)).run.artifacts
        if request.id not in kept:
            raise ArtifactNotFound(request.id, list(kept))
        artifact = kept[request.id]
        return view_content(request.id, artifact, await self.store.blobs.find(artifact.hash))

    async def list_receipts(self, request: requests.ListReceipts) -> step_shapes.ReceiptList:
        """The receipts in the run's directory on this machine."""
        from onward.operations.here.directories import receipts_here

        folded = await self._load(request.run)
        return await receipts_here(self.store, self.sources(), self.leftovers().runs, folded.run)

    async def read_printed(self, request: requests.ReadPrinted) -> step_shapes.PrintedShown:
        """The end of what the run printed, from its directory on this machine."""
        from onward.operations.here.directories import printed_here

        return await printed_here(self.store, self.leftovers().runs, request)

    async def draw_run(self, request: requests.DrawRun) -> step_shapes.Drawing:
        """The graph of the run's pipeline, with what happened in it."""

        folded = await self._load(request.run)
        return await draw(self.store.log, self.sources(), folded, original=request.original)

    async def _has_ended(self, run_id: str) -> bool:
        return (await self._journal.load(run_id)).run.ended_at_us is not None

    async def _load(self, wanted: str) -> Folded:
        return await self._journal.load(await self._run_id(wanted))

    async def _run_id(self, wanted: str) -> str:
        return (await find_run(self.store.runs, wanted)).row.id

    @property
    def _journal(self) -> Journal:
        return Journal(self.store.log, self.clock)

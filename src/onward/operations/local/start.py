"""New runs, by an engine that executes nothing of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from onward.engine.control.requests import Fork, Start
from onward.engine.engine import Engine
from onward.machine.fold.row import project
from onward.model.simulation import Simulation
from onward.model.values.tool_env import Variables
from onward.operations.local.look import run_state
from onward.operations.local.terms import run_id_of, terms_of
from onward.operations.replies import Forked, RunListed, Submitted, SubmittedRuns
from onward.operations.requests import ForkRun, SubmitRun, SubmitRuns
from onward.pipeline.build import Pipeline
from onward.read.lookup import find_run
from onward.read.view import view_row


@dataclass(frozen=True, slots=True)
class LocalStart:
    """Makes runs through one engine; a worker executes them."""

    engine: Engine

    async def submit_run(self, request: SubmitRun) -> Submitted:
        """Create a run and leave it queued for whichever worker claims it."""
        pipeline = prepared(self.engine, request)
        folded = await self.engine.submit(pipeline, start_of(request))
        run = await run_state(self.engine.store, folded)
        return {"run": run, "warnings": [str(warning) for warning in pipeline.warnings]}

    async def submit_runs(self, request: SubmitRuns) -> SubmittedRuns:
        """Create many runs; a pipeline that several of them have is prepared once."""
        pipelines = dict[tuple[str, str, str | None], Pipeline]()
        asked = [(self._once(pipelines, one), start_of(one)) for one in request.runs]
        created = await self.engine.submit_many(asked)
        warnings = [str(warning) for pipeline in pipelines.values() for warning in pipeline.warnings]
        runs = [view_row(project(folded.run), folded.holder) for folded in created]
        return {"runs": cast("list[RunListed]", runs), "warnings": warnings}

    def _once(self, known: dict[tuple[str, str, str | None], Pipeline], request: SubmitRun) -> Pipeline:
        what = request.source, request.file, request.path
        if what not in known:
            known[what] = prepared(self.engine, request)
        return known[what]

    async def fork_run(self, request: ForkRun) -> Forked:
        """A new run that shares another's log up to a checkpoint. The other run is not touched."""
        parent = (await find_run(self.engine.store.runs, request.run)).row.id
        notices: list[str] = []
        fork = Fork(
            request.checkpoint,
            from_step=request.from_step,
            changes=request.changes,
            by=request.by,
            new_id=run_id_of(request),
            accept_changes=request.accept_changes,
            original=request.original,
            terms=terms_of(request),
        )
        folded = await self.engine.fork(parent, fork, tell=notices.append)
        return {**await run_state(self.engine.store, folded), "notice": "; ".join(notices)}


def prepared(engine: Engine, request: SubmitRun, variables: Variables | None = None) -> Pipeline:
    """The pipeline of a request, checked as for every run; with `variables`, also against those."""
    found = engine.sources.prepare(request.source, request.file, variables)
    return replace(found, path=request.path)


def start_of(request: SubmitRun) -> Start:
    """How the engine is asked for the run."""
    return Start(
        inputs=request.inputs,
        run_id=run_id_of(request),
        simulation=_simulation(request),
        on_owner_loss=request.on_owner_loss,
        priority=request.priority,
        exclusive_key=request.exclusive_key,
        tags=request.tags,
        wake_at_us=request.wake_at_us,
        workdir=request.workdir,
        workspace=request.workspace,
        workspace_mode=request.workspace_mode,
        keep_workspace=request.keep_workspace,
        terms=terms_of(request),
    )


def _simulation(request: SubmitRun) -> Simulation | None:
    if request.simulation is None:
        return None
    return Simulation(script=request.simulation, real_tools=request.real_tools)

"""New runs for the queue, by a store alone. `onward submit` must be quick, so this imports no engine.

The terms of a request come first: its idempotency key, what it asks, and the head it was made for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from onward.engine.control.create import Submitting
from onward.engine.control.requests import StartRequest
from onward.engine.log import RequestTerms
from onward.engine.sources import Registry
from onward.errors import PipelineNotFound, Refused, RunNotFound
from onward.machine.fold.rows import run_row
from onward.model.ids import check_key, keyed_run_id, read_wanted
from onward.model.run import Simulation
from onward.model.values import Variables
from onward.operations.answers import note_answer
from onward.operations.requests import LimitRaise, NewRun, ResumeRun, RunChange, SubmitRun, SubmitRuns
from onward.pipeline.build import Pipeline
from onward.pipeline.graph import Graph
from onward.pipeline.local import named_here
from onward.read.view import Beside, view_limit, view_row, view_run

if TYPE_CHECKING:
    from onward.replies.runs import Submitted, SubmittedRuns


def terms_of(request: RunChange | ResumeRun | NewRun) -> RequestTerms:
    """The terms of a request. What is asked under its key is everything else in it."""
    asked = {"request": type(request).__name__, **msgspec.structs.asdict(request)}
    key = asked.pop("key")
    if asked.get("pipeline", "") is None:  # so that requests from before registered pipelines stay the same
        del asked["pipeline"]
    if isinstance(request, NewRun) and not asked.get("raises"):  # so too those from before runs had them
        asked.pop("raises", None)
    if not asked.get("only_stopped"):  # and those from before a resume could ask for it
        asked.pop("only_stopped", None)
    asked.pop("may_run_commands", None)  # the operator says it, and not who asks
    if isinstance(
        request, NewRun
    ):  # their roles do, and requests from before forks knew of roles stay the same
        asked.pop("may_answer", None)
    if asked.get("content_hash", "") is None:  # and those from before an answer could name its question
        del asked["content_hash"]
    body = None if key is None else msgspec.json.encode(asked, order="sorted")
    return RequestTerms(None if key is None else check_key(key), body, asked.get("if_head"))


def run_id_of(request: NewRun) -> str | None:
    """The id that the new run is to have: the caller's own, or the one that caller and key come to."""
    if request.run_id is None and request.key is not None:
        return keyed_run_id(request.by, check_key(request.key))
    return request.run_id


_What = tuple[str, str, str | None, str | None, bool]


class LocalSubmit(msgspec.Struct, frozen=True):
    """Makes runs of one store; a worker executes them."""

    registry: Registry
    submitting: Submitting

    async def submit_run(self, request: SubmitRun) -> Submitted:
        """Create a run and leave it queued for whichever worker claims it."""
        pipeline = await self._prepared(request)
        folded = await self.submitting.submit(pipeline, start_of(request))
        note_answer(is_repeat=folded.is_repeat)
        now_us, workers = self.submitting.clock.now_us(), await self.registry.store.workers.read()
        beside = Beside(now_us, view_limit(folded.run), workers)
        run = view_run(run_row(folded.run), folded.holder, folded.run, beside)
        return {"run": run, "warnings": [str(warning) for warning in pipeline.warnings]}

    async def submit_runs(self, request: SubmitRuns) -> SubmittedRuns:
        """Create many runs; a pipeline that several of them have is prepared once."""
        pipelines = dict[_What, Pipeline]()
        asked = [(await self._once(pipelines, one), start_of(one)) for one in request.runs]
        created = await self.submitting.submit_many(asked)
        warnings = [str(warning) for pipeline in pipelines.values() for warning in pipeline.warnings]
        workers = await self.registry.store.workers.read()
        runs = [view_row(run_row(folded.run), folded.holder, workers=workers) for folded in created]
        return {"runs": runs, "warnings": warnings}

    async def _once(self, known: dict[_What, Pipeline], request: SubmitRun) -> Pipeline:
        what = request.source, request.file, request.path, request.pipeline, request.may_run_commands
        if what not in known:
            known[what] = await self._prepared(request)
        return known[what]

    async def _prepared(self, request: SubmitRun) -> Pipeline:
        """The pipeline of a request. If its name was removed, a repeated request still finds its run."""
        try:
            return await prepared(self.registry, request)
        except PipelineNotFound as error:
            run_id = run_id_of(request)
            if request.key is None or run_id is None:
                raise
            return await self._of_run(run_id, error)

    async def _of_run(self, run_id: str, error: PipelineNotFound) -> Pipeline:
        try:
            run = (await self.submitting.journal.load(run_id)).run
        except RunNotFound:
            raise error from None
        stored = await self.registry.sources.stored(run)
        return replace(stored, name=run.pipeline, path=run.path, version=run.pipeline_version)


async def prepared(registry: Registry, request: SubmitRun, variables: Variables | None = None) -> Pipeline:
    """The pipeline of a request, checked as for every run; with `variables`, also against those."""
    if request.pipeline is not None:
        return await registry.find(read_wanted(request.pipeline), variables)
    found = registry.sources.prepare(request.source, request.file, variables)
    if not request.may_run_commands:
        check_sent(found.graph)
    return replace(found, path=request.path)


NAMED_MAX = 20


def check_sent(graph: Graph) -> None:
    """Refuse a pipeline that came over the network and names commands or places of this machine."""
    found = named_here(graph)
    if found:
        raise Refused(
            "not_over_http",
            f"{found[0]} uses the server's machine, which pipelines sent over HTTP may not do; register the "
            "pipeline on that machine with `onward pipelines add FILE`, or start the server with `onward "
            "serve --allow-shell`.",
            details={"found": [{"node": one.node or None, "key": one.key} for one in found[:NAMED_MAX]]},
        )


def start_of(request: SubmitRun) -> StartRequest:
    """How the engine is asked for the run."""
    return StartRequest(
        inputs=request.inputs,
        run_id=run_id_of(request),
        simulation=_simulation(request),
        on_owner_loss=request.on_owner_loss,
        priority=request.priority,
        exclusive_key=request.exclusive_key,
        tags=request.tags,
        wake_at_us=request.wake_at_us,
        chat=request.chat,
        project=request.project,
        workdir=request.workdir,
        workspace=request.workspace,
        workspace_mode=request.workspace_mode,
        keep_workspace=request.keep_workspace,
        raises=raises_of(request.raises),
        terms=terms_of(request),
    )


def raises_of(wanted: Sequence[LimitRaise]) -> tuple[tuple[str, str, int], ...]:
    """How the engine is asked to raise limits."""
    return tuple((f"{one.kind}/{one.id}".rstrip("/"), one.measure, one.value) for one in wanted)


def _simulation(request: SubmitRun) -> Simulation | None:
    if request.simulation is None:
        return None
    return Simulation(script=request.simulation, real_tools=request.real_tools)

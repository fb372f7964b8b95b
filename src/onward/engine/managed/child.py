"""The run that a managing step manages: found if it exists, created if it does not.

The step's start names it, so after any crash there is the same one run and never a second.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

from onward.engine.control.interview import Interviewer
from onward.engine.control.requests import Resume, Start
from onward.engine.control.sources import Sources, beside
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.terms import RequestTerms
from onward.engine.loop.stop import StopSwitch
from onward.engine.registry.pipelines import Registry
from onward.errors import InvalidInput, RunNotFound
from onward.handlers.port import StepContext
from onward.model.events import Managed
from onward.model.ids import can_be_registered, read_wanted
from onward.model.run import Run, Simulation
from onward.pipeline.build import Pipeline

DEPTH_MAX = 8
# What the engine notes about a run is about that run alone; everything else is handed to the child.
_OWN_KEYS = ("outcome", "preferred_label", "current_node", "last_stage", "last_response")
_OWN_PREFIXES = ("graph.", "internal.", "parallel.", "human.gate.", "stack.", "tool.")


class ManagedRuns(Protocol):
    """What managing asks of the engine."""

    @property
    def journal(self) -> Journal: ...

    @property
    def sources(self) -> Sources: ...

    @property
    def registry(self) -> Registry: ...

    async def submit(self, pipeline: Pipeline, start: Start) -> Folded: ...

    async def resume(self, run_id: str, resume: Resume, stop: StopSwitch | None = None) -> Folded: ...

    async def attend(self, folded: Folded, interviewer: Interviewer, stop: StopSwitch) -> Folded: ...

    async def cancel(self, run_id: str, *, by: str = "user") -> Folded: ...

    async def steer(self, run_id: str, text: str, *, by: str = "user") -> Folded: ...

    def check_served(
        self, pipeline: Pipeline, simulation: Simulation | None, workdir: str | None = None
    ) -> None: ...

    def is_at_work(self, folded: Folded) -> bool: ...


def setting(step: StepContext, key: str) -> str:
    """An attribute of the node, or else of the graph."""
    return step.node.text(key) or step.graph.text(key)


async def latest(journal: Journal, run_id: str) -> Folded:
    """A child as it stands; if a loop_restart ended it, the run that continues in its place."""
    folded = await journal.load(run_id)
    while folded.run.restarted_as is not None:
        folded = await journal.load(folded.run.restarted_as)
    return folded


async def find_or_make(runs: ManagedRuns, step: StepContext) -> str:
    """The id of the step's child, which then exists."""
    assert step.child is not None  # the planner names one for every managing step
    try:
        found = (await runs.journal.load(step.child)).run
    except RunNotFound:
        found = await _make(runs, step, step.child)
    by = found.managed_by
    if by is None or (by.run, by.step) != (step.run_id, step.step):
        raise InvalidInput(
            f"step {step.step} would manage run {step.child}, which it did not create; "
            f"continue with `onward resume {step.run_id} --from {step.node.id}`, which creates a new one."
        )
    return found.id


async def _make(runs: ManagedRuns, step: StepContext, run_id: str) -> Run:
    parent = (await runs.journal.load(step.run_id)).run
    depth = 1 + (parent.managed_by.depth if parent.managed_by else 0)
    if depth > DEPTH_MAX:
        raise InvalidInput(
            f"node {step.node.id!r} would create a child run {depth} levels below the first; "
            f"runs manage runs at most {DEPTH_MAX} deep. Does a pipeline manage itself?"
        )
    pipeline = await _pipeline(runs, step, parent)
    # Whatever would refuse the child when it runs must refuse it now, before it exists.
    workdir = _workdir(step, parent)
    runs.check_served(pipeline, parent.simulation, workdir)
    start = Start(
        inputs=handed_on(step),
        run_id=run_id,
        simulation=parent.simulation,
        on_owner_loss=parent.on_owner_loss,
        terms=RequestTerms(f"child of {step.idempotency_key}"),
        managed_by=Managed(run=parent.id, step=step.step, depth=depth),
        workdir=workdir,
        chat=parent.chat,
        project=parent.project,
        charged_to=parent.charged_to or parent.id,
    )
    return (await runs.submit(pipeline, start)).run


async def _pipeline(runs: ManagedRuns, step: StepContext, parent: Run) -> Pipeline:
    """What the child runs: a file beside the parent's, or else a registered pipeline.

    A registered parent has no file, and so nothing beside it.
    """
    written = setting(step, "stack.child_dotfile")
    if not written:
        raise InvalidInput(
            f"node {step.node.id!r} manages a child run, but names no file for it; "
            'write stack.child_dotfile="FILE.dot" on the graph or on the node.'
        )
    path = beside(parent.path, written)
    if _is_registered(written, parent, path):
        return await runs.registry.find(read_wanted(written))
    return runs.sources.read(path)


def _is_registered(written: str, parent: Run, path: str) -> bool:
    has_no_file = parent.pipeline_version is not None or not os.path.isfile(path)
    return can_be_registered(written) and has_no_file


def _workdir(step: StepContext, parent: Run) -> str | None:
    written = setting(step, "stack.child_workdir")
    return beside(parent.path, written) if written else step.workspace or parent.workdir


def handed_on(step: StepContext) -> dict[str, Any]:
    """The values that the child begins with: the manager's, but for what is about the manager's run."""
    return {
        key: value
        for key, value in step.context.items()
        if key not in _OWN_KEYS and not key.startswith(_OWN_PREFIXES)
    }

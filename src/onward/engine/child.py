"""The run that a managing step manages: its settings, its manager's view, and how it is found.

The step's start names the child, so after any crash there is the same one run and never a second. Its
manager sees a few plain values of it: for conditions, for models and for the record. Quick commands import
this for the settings on a managing node.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from onward.engine.control.requests import Interviewer, Resume, StartRequest
from onward.engine.journal import Journal
from onward.engine.log import Folded, RequestTerms
from onward.engine.sources import Registry, Sources, beside
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, RunNotFound
from onward.handlers.port import StepContext
from onward.machine.reasons import ContinuedBy, reason_of
from onward.model.events import Managed, StepStatus
from onward.model.ids import called, can_be_registered, idempotency_key, read_wanted
from onward.model.run import AttemptState, Run, RunStatus, Simulation
from onward.pipeline.build import Pipeline
from onward.pipeline.condition import Condition, parse_condition, resolver
from onward.pipeline.graph import Node
from onward.pipeline.rules.attributes import as_actions

PREFIX = "stack.child."
_OUTCOMES = {
    RunStatus.COMPLETED: StepStatus.SUCCESS.value,
    RunStatus.FAILED: StepStatus.FAIL.value,
    RunStatus.CANCELLED: StepStatus.FAIL.value,
}


def observed(folded: Folded, *, is_at_work: bool) -> dict[str, Any]:
    """The keys `stack.child.*`. A run whose holder died is interrupted, as everywhere else."""
    run = folded.run
    is_lost = run.status is RunStatus.RUNNING and not is_at_work
    return {
        f"{PREFIX}run": run.id,
        f"{PREFIX}status": RunStatus.INTERRUPTED.value if is_lost else run.status.value,
        f"{PREFIX}outcome": _OUTCOMES.get(run.status, ""),
        f"{PREFIX}node": _node(run),
        f"{PREFIX}steps": run.steps_finished,
        f"{PREFIX}reason": run.reason,
        f"{PREFIX}detail": run.detail,
    }


def _node(run: Run) -> str:
    """Where the run is: the step under way, or else the node it stands before, or the last one."""
    at_work = [step.node for step in run.open_steps.values() if step.state is AttemptState.OPEN]
    return (at_work[0] if at_work else run.next_node) or run.root.previous


def holds(condition: Condition, values: Mapping[str, Any], seen: Mapping[str, Any], child: Run) -> bool:
    """Whether a stop condition is true: of the manager's context, of what it saw, and of the child's own
    context, whose keys it names with the prefix `stack.child.context.`."""
    if not condition.clauses:
        return False
    own = {f"{PREFIX}context.{key}": value for key, value in child.context.items()}
    return condition.holds(resolver(str(values.get("outcome", "")), "", {**values, **own, **seen}))


def named(run: Run) -> str:
    """How sentences call a child."""
    return f"the child run {called(run.id)}"


MANAGER = "manager"
# Why a manager cancelled its child, as the child's log keeps it: the next attempt reads it there.
ORPHANED = f"{MANAGER} (no step manages it any more)"
SATISFIED = f"{MANAGER} (stop condition)"
EXHAUSTED = f"{MANAGER} (max_cycles)"
TIMED_OUT = f"{MANAGER} (timeout)"
POLL_S, CYCLES_MAX = 45.0, 1000
STEER = "steer"


def is_steering(node: Node) -> bool:
    """Whether a managing node asks a model for instructions."""
    return STEER in as_actions(node.text("manager.actions", "observe,wait")) and bool(node.prompt)


class ManagerSettings(msgspec.Struct, frozen=True):
    """What is written on a managing node."""

    poll_s: float
    cycles_max: int
    cooldown_s: float
    stop: Condition
    executes_child: bool
    is_steering: bool
    timeout_s: float | None

    @classmethod
    def of(cls, node: Node) -> ManagerSettings:
        poll_s = node.duration_s("manager.poll_interval") or POLL_S
        cooldown_s = node.duration_s("manager.steer_cooldown")
        return cls(
            poll_s=poll_s,
            cycles_max=node.count("manager.max_cycles") or CYCLES_MAX,
            cooldown_s=poll_s if cooldown_s is None else cooldown_s,
            stop=parse_condition(node.text("manager.stop_condition")),
            executes_child=node.boolean("stack.child_autostart", True),
            is_steering=is_steering(node),
            timeout_s=node.timeout_s,
        )


def stands_idle(child: Folded, *, is_at_work: bool) -> bool:
    """Whether a child stands still, but not because a person stopped it: its manager may execute it."""
    run, is_due = child.run, child.is_due
    may_manager = reason_of(run.reason).continued_by is ContinuedBy.MANAGER
    match run.status:
        case RunStatus.QUEUED:
            return is_due
        case RunStatus.RUNNING:
            return not is_at_work
        case RunStatus.INTERRUPTED:
            return is_due and may_manager
        case RunStatus.PAUSED:
            return may_manager
        case _:
            return run.status is RunStatus.FAILED


def why_cancelled(step: StepContext, child: Run, by: str) -> str:
    """Why a managing step fails when its child was cancelled."""
    anew = f"`onward resume {step.run_id} --from {step.node.id}` starts another"
    if by == EXHAUSTED:
        cycles = ManagerSettings.of(step.node).cycles_max
        return f"{named(child)} had not ended after {cycles} cycles (manager.max_cycles); {anew}"
    if by == TIMED_OUT:
        return f"timed out: {named(child)} had not ended in time, and was cancelled; {anew}"
    return f"{named(child)} was cancelled by {by or 'someone'}; {anew}"


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

    async def submit(self, pipeline: Pipeline, start: StartRequest) -> Folded: ...

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
    written = setting(step, "stack.child_dotfile")
    if not written:
        raise InvalidInput(
            f"node {step.node.id!r} manages a child run, but names no file for it; "
            'write stack.child_dotfile="FILE.dot" on the graph or on the node.'
        )
    parent = (await runs.journal.load(step.run_id)).run
    new = NewChild(run_id, f"node {step.node.id!r}", step.step, "", handed_on(step), _workdir(step, parent))
    return await create_child(runs, parent, new, await child_pipeline(runs, parent, written))


class NewChild(msgspec.Struct, frozen=True):
    """A run that a step, or a call of a flow, wants to have. `what` is how sentences call who wants it."""

    id: str
    what: str
    step: str
    call: str
    inputs: Mapping[str, Any]
    workdir: str | None


async def create_child(runs: ManagedRuns, parent: Run, new: NewChild, pipeline: Pipeline) -> Run:
    """Create a child, queued. Created again, it is the same run. Its calls are charged to the first run."""
    depth = 1 + (parent.managed_by.depth if parent.managed_by else 0)
    if depth > DEPTH_MAX:
        raise InvalidInput(
            f"{new.what} would create a child run {depth} levels below the first; "
            f"runs manage runs at most {DEPTH_MAX} deep. Does a pipeline manage itself?"
        )
    # Whatever would refuse the child when it runs must refuse it now, before it exists.
    runs.check_served(pipeline, parent.simulation, new.workdir)
    by = idempotency_key(parent.id, new.step)
    start = StartRequest(
        inputs=new.inputs,
        run_id=new.id,
        simulation=parent.simulation,
        on_owner_loss=parent.on_owner_loss,
        terms=RequestTerms(f"child of {by}/{new.call}" if new.call else f"child of {by}"),
        managed_by=Managed(run=parent.id, step=new.step, depth=depth, call=new.call),
        workdir=new.workdir,
        chat=parent.chat,
        project=parent.project,
        charged_to=parent.charged_to or parent.id,
    )
    return (await runs.submit(pipeline, start)).run


async def child_pipeline(runs: ManagedRuns, parent: Run, written: str) -> Pipeline:
    """What a child runs: a file beside the parent's, or else a registered pipeline.

    A registered parent has no file, and so nothing beside it.
    """
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

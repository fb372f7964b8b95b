"""What the holder of a run does next: a pure function of the graph, the run and the time.

Starting, resuming, taking over and waking all come here. Control nodes are rules of this file; only
effects leave it, as something to perform.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onward.machine.apply import context_after
from onward.machine.closing import cancelling
from onward.machine.definition import AGENT, CONDITIONAL, EXIT, GATE, START, Definition
from onward.machine.fidelity import fidelity_of
from onward.machine.route import choices_of, edge_of, unmet_gate, way_back, way_on
from onward.model.event import (
    Event,
    GateOpened,
    GoalRedirected,
    Outcome,
    RunCompleted,
    RunFailed,
    RunInterrupted,
    RunPaused,
    RunWaiting,
    StepFinished,
    StepStarted,
    StepStatus,
    Transition,
)
from onward.model.ids import step_id
from onward.model.run import AttemptState, Frozen, Gate, OpenStep, Run
from onward.pipeline.graph import Node

LOSSES_MAX = 5
# What a finished step can hand to a conditional node: it was not skipped, and it is not tried again.
ROUTED = (StepStatus.SUCCESS.value, StepStatus.PARTIAL_SUCCESS.value, StepStatus.FAIL.value)


class Record(Frozen, frozen=True):
    """Write these down and plan again."""

    events: tuple[Event, ...]


class Perform(Frozen, frozen=True):
    """Write the start down, then do the effect."""

    started: StepStarted

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.started,)


class Sleep(Frozen, frozen=True):
    """Nothing to do before this instant."""

    until_us: int
    step: str
    events: tuple[Event, ...] = ()


class Stop(Frozen, frozen=True):
    """Write these down; the last of them lets go of the run."""

    events: tuple[Event, ...]


Action = Record | Perform | Sleep | Stop


def plan(definition: Definition, run: Run, *, now_us: int, stop_reason: str | None = None) -> Action:
    """The next thing to do for a run that is held. `stop_reason`: this process was asked to stop."""
    if run.pending.cancel_by is not None:
        return Stop(cancelling(run, by=run.pending.cancel_by))
    if run.losses >= LOSSES_MAX:
        detail = f"{run.losses} owners in a row died without finishing a step"
        return _stop(run, RunFailed(reason="crash_loop", detail=detail))
    node_id = run.next_node
    # Nothing is left to pause before: a run that has arrived is finished, not stopped.
    if node_id is None:
        return _end(definition, run)
    if node_id == definition.graph.exit_id:
        return _enter(definition, run, definition.graph.nodes[node_id])
    step = step_id(node_id, run.visits.get(node_id, 0))
    gate = run.gates.get(step)
    if stop_reason is not None and (gate is None or gate.decided is not None):
        return Stop((RunPaused(reason=stop_reason),))
    if run.pending.pause_after is not None:
        return Stop((RunPaused(reason="operator", detail=f"asked by {run.pending.pause_by}"),))
    node = definition.graph.nodes.get(node_id)
    if node is None:
        detail = f"the pipeline has no node {node_id!r} any more; resume with --original or --from"
        return _stop(run, RunFailed(reason="pipeline_error", detail=detail))
    opened = run.open_steps.get(step)
    if opened is not None:
        return _continue(definition, run, node, opened, now_us)
    if gate is not None:
        return _at_gate(definition, run, gate)
    return _enter(definition, run, node)


def _stop(run: Run, event: Event) -> Stop:
    """Every stop honours a pending pause; a pending cancel never gets this far."""
    if run.pending.pause_after is not None:
        return Stop((RunPaused(reason="operator", detail=f"asked by {run.pending.pause_by}"),))
    return Stop((event,))


def _end(definition: Definition, run: Run) -> Action:
    """The exit is behind us, or nothing leads on: the end, unless a goal gate is unmet."""
    gate = unmet_gate(definition, run)
    if gate is None:
        return Stop((RunCompleted(),))
    back = way_back(definition.graph, gate)
    if back is None:
        detail = f"goal gate {gate} ended as {run.outcomes[gate]} and names no retry_target"
        return _stop(run, RunFailed(reason="goal_unmet", detail=detail, step=gate))
    if run.reroutes >= definition.max_reroutes:
        detail = f"goal gate {gate} is still unmet after {run.reroutes} redirects (max_reroutes)"
        return _stop(run, RunFailed(reason="goal_unmet", detail=detail, step=gate))
    return Record((GoalRedirected(gate=gate, next=back),))


def _enter(definition: Definition, run: Run, node: Node) -> Action:
    """A node that has not begun: its next visit."""
    if run.visits.get(node.id, 0) >= definition.max_visits:
        detail = f"node {node.id} was visited {run.visits.get(node.id, 0)} times (max_visits)"
        return _stop(run, RunFailed(reason="pipeline_error", detail=detail))
    if run.steps_finished >= definition.max_steps:
        detail = f"the run has finished {run.steps_finished} steps (max_steps)"
        return _stop(run, RunFailed(reason="pipeline_error", detail=detail))
    kind = definition.kind(node.id)
    rule = _RULES.get(kind)
    if rule is not None:
        return rule(definition, run, node)
    step = step_id(node.id, run.visits.get(node.id, 0) + 1)
    return Perform(_started(definition, run, node, step, attempt=1))


def _continue(definition: Definition, run: Run, node: Node, opened: OpenStep, now_us: int) -> Action:
    """A step that has begun: what became of its last attempt decides."""
    match opened.state:
        case AttemptState.RETRYING:
            if opened.retry_at_us is not None and opened.retry_at_us > now_us:
                return Sleep(opened.retry_at_us, opened.step)
            return Perform(_started(definition, run, node, opened.step, attempt=opened.attempt + 1))
        case AttemptState.FAILED:
            detail = f"step {opened.step}: {opened.reason}"
            return _stop(run, RunFailed(reason="step_failed", detail=detail, step=opened.step))
        case AttemptState.OPEN if opened.token == run.token:
            raise AssertionError(f"{opened.step} is being performed under token {run.token}")
        case _:
            return _abandoned(definition, run, node, opened)


def _abandoned(definition: Definition, run: Run, node: Node, opened: OpenStep) -> Action:
    """An attempt that somebody began and nobody finished keeps its number, if it may be made again."""
    if opened.repeatable:
        return Perform(_started(definition, run, node, opened.step, attempt=opened.attempt))
    detail = f"step {opened.step} was cut off and must not be blindly repeated"
    return _stop(run, RunInterrupted(reason="in_doubt", detail=detail))


def _started(definition: Definition, run: Run, node: Node, step: str, *, attempt: int) -> StepStarted:
    fidelity, degraded_from = "", ""
    if definition.kind(node.id) == AGENT:
        fidelity, degraded_from = fidelity_of(definition.graph, run, node)
    return StepStarted(
        step=step,
        node=node.id,
        attempt=attempt,
        repeatable=node.repeatable,
        fidelity=fidelity,
        degraded_from=degraded_from,
    )


def _pass_start(definition: Definition, run: Run, node: Node) -> Action:
    outcome = Outcome(status=StepStatus.SUCCESS)
    onward = definition.only_way(node.id) or way_on(
        definition.graph, node.id, outcome, context_after(run.context, outcome, {}, {})
    )
    return _passed(run, node, outcome, onward)


def _pass_exit(definition: Definition, run: Run, node: Node) -> Action:
    """Gates are judged before the exit counts as reached."""
    end = _end(definition, run)
    if not (isinstance(end, Stop) and isinstance(end.events[0], RunCompleted)):
        return end
    return _passed(run, node, Outcome(status=StepStatus.SUCCESS), None)


def _pass_conditional(definition: Definition, run: Run, node: Node) -> Action:
    """The outcome that came in goes out: a conditional node is where others' outcomes are routed."""
    came_in = run.context.get("outcome", StepStatus.SUCCESS.value)
    if came_in not in ROUTED:
        detail = f"the context says outcome={came_in!r}, and {node.id} can route only {', '.join(ROUTED)}"
        return _stop(run, RunFailed(reason="pipeline_error", detail=detail))
    outcome = Outcome(status=StepStatus(came_in), preferred_label=run.root.label)
    onward = way_on(definition.graph, node.id, outcome, run.context)
    if onward is None and outcome.status is StepStatus.FAIL:
        detail = f"no edge of {node.id} takes outcome={came_in}"
        return _stop(run, RunFailed(reason="step_failed", detail=detail))
    return _passed(run, node, outcome, onward)


def _passed(run: Run, node: Node, outcome: Outcome, onward: Transition | None) -> Record:
    step = step_id(node.id, run.visits.get(node.id, 0) + 1)
    return Record((StepFinished(step=step, node=node.id, attempt=1, outcome=outcome, next=onward),))


def _open_gate(definition: Definition, run: Run, node: Node) -> Action:
    choices = choices_of(definition.graph, node.id)
    if not choices:
        detail = f"human gate {node.id} has no edges to choose from"
        return _stop(run, RunFailed(reason="pipeline_error", detail=detail))
    gate = step_id(node.id, run.visits.get(node.id, 0) + 1)
    return Record((GateOpened(gate=gate, node=node.id, text=node.label, choices=choices),))


def _at_gate(definition: Definition, run: Run, gate: Gate) -> Action:
    """An undecided gate parks the run; a decided one is a finished step."""
    choice = gate.decided
    if choice is None:
        return _stop(run, RunWaiting())
    edge = edge_of(definition.graph, gate.node, choice)
    outcome = Outcome(
        status=StepStatus.SUCCESS, preferred_label=choice.label, suggested_next_ids=(choice.to,)
    )
    answered = {"human.gate.selected": choice.key, "human.gate.label": choice.label}
    if gate.answer:
        answered["human.gate.text"] = gate.answer
    onward = Transition(to=choice.to, reason="gate", edge=edge.order if edge else None)
    return Record(
        (
            StepFinished(
                step=gate.gate, node=gate.node, attempt=1, outcome=outcome, context=answered, next=onward
            ),
        )
    )


_RULES: Mapping[str, Callable[[Definition, Run, Node], Action]] = {
    START: _pass_start,
    EXIT: _pass_exit,
    CONDITIONAL: _pass_conditional,
    GATE: _open_gate,
}

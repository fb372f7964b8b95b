"""What one branch of a run does next: the main branch (`""`), or one that a fan-out opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from onward.machine.definition import AGENT, CONDITIONAL, EXIT, GATE, MANAGER, START, Definition
from onward.machine.fold.calls import GATE as HELD_AT_GATE
from onward.machine.fold.calls import LIMIT, RATE_LIMIT
from onward.machine.fold.steps import context_after
from onward.machine.plan.action import Action, Append, Execute, Sleep, Stop
from onward.machine.plan.ending import NO_WAY_ON, is_stuck, last_step, transition_now, why_stuck
from onward.machine.plan.fan import fan_in, fan_out
from onward.machine.plan.fidelity import shown_to
from onward.machine.plan.gates import at_gate, open_gate, unanswered
from onward.machine.plan.restart import restart
from onward.machine.plan.route import goal_transition, next_transition, unmet_gate
from onward.machine.plan.stops import failed, passed, stop_with
from onward.model.events.runs import RunCompleted, RunFailed, RunInterrupted
from onward.model.events.steps import GoalRedirected, Outcome, StepRouted, StepStarted, StepStatus
from onward.model.ids import child_run_id, place, step_id
from onward.model.run import AttemptState, Branch, OpenStep, Run
from onward.pipeline.graph import Node
from onward.pipeline.joins import FAN_IN, PARALLEL

SUCCEEDED = Outcome(status=StepStatus.SUCCESS)
HOLDS_MAX = 20
"""How often in a row a run continues by itself after a provider asked to come back later."""
# What a finished step can hand to a conditional node: it was not skipped, and it is not tried again.
ROUTED = (StepStatus.SUCCESS.value, StepStatus.PARTIAL_SUCCESS.value, StepStatus.FAIL.value)


def has_arrived(definition: Definition, branch: Branch) -> bool:
    """Whether a branch stands at the exit, or nothing leads on from where it is."""
    return branch.next_node is None or branch.next_node == definition.graph.exit_id


def plan_branch(definition: Definition, run: Run, branch_id: str, now_us: int) -> Action:
    """The next thing for this branch, as if it were alone."""
    node_id = run.branches[branch_id].next_node
    if node_id is None:
        return _after_last(definition, run, branch_id)
    node = definition.graph.nodes.get(node_id)
    if node is None:
        detail = f"the pipeline no longer has node {node_id!r}; resume with --original or --from"
        return stop_with(run, RunFailed(reason="pipeline_error", detail=detail))
    visits = run.visits.get(place(node_id, branch_id), 0)
    if run.open_steps or run.gates:
        step = step_id(node_id, visits, branch_id)
        opened = run.open_steps.get(step)
        if opened is not None:
            return _continue(definition, run, branch_id, node, opened, now_us)
        gate = run.gates.get(step)
        if gate is not None:
            return at_gate(definition, run, branch_id, node, gate, now_us)
    return _enter(definition, run, branch_id, node, visits, now_us)


def _after_last(definition: Definition, run: Run, branch_id: str) -> Action:
    """The last step chose no edge. Choose again: the edges, or the context, may have changed since."""
    branch = run.branches[branch_id]
    if branch.reason:
        return failed(run, f"step {last_step(run, branch_id)}: {branch.reason}")
    if not is_stuck(definition, branch):
        return _end(
            definition, run, ended_at="" if branch.previous == definition.graph.exit_id else branch.previous
        )
    step, onward = last_step(run, branch_id), transition_now(definition, branch)
    if onward is not None:
        return Append((StepRouted(step=step, next=onward),))
    detail = why_stuck(definition, run, branch_id)
    return stop_with(run, RunFailed(reason=NO_WAY_ON, detail=detail, step=step))


def _end(definition: Definition, run: Run, *, ended_at: str = "") -> Action:
    """The exit, or a node without edges (`ended_at`): the run is completed unless a goal gate is unmet."""
    gate = unmet_gate(definition, run)
    if gate is None:
        return Stop((RunCompleted(ended_at=ended_at),))
    back = goal_transition(definition.graph, gate)
    if back is None:
        detail = f"goal gate {gate} ended as {run.outcomes[gate]} and has no retry_target"
        return stop_with(run, RunFailed(reason="goal_unmet", detail=detail, step=gate))
    if run.reroutes >= definition.max_reroutes:
        detail = f"goal gate {gate} is still unmet after {run.reroutes} redirects (max_reroutes)"
        return stop_with(run, RunFailed(reason="goal_unmet", detail=detail, step=gate))
    return Append((GoalRedirected(gate=gate, next=back),))


def _enter(definition: Definition, run: Run, branch_id: str, node: Node, visits: int, now_us: int) -> Action:
    """A node that has not begun: its next visit, after so many."""
    if visits >= definition.max_visits:
        detail = f"node {node.id} was visited {visits} times (max_visits)"
        return stop_with(run, RunFailed(reason="pipeline_error", detail=detail))
    if run.steps_finished >= definition.max_steps:
        detail = f"the run has finished {run.steps_finished} steps (max_steps)"
        return stop_with(run, RunFailed(reason="pipeline_error", detail=detail))
    if definition.restarts and run.branches[branch_id].edge in definition.restarts:
        return restart(definition, run, branch_id, node)
    rule = _RULES.get(definition.kind(node.id))
    if rule is not None:
        return rule(definition, run, branch_id, node, now_us)
    step = step_id(node.id, visits + 1, branch_id)
    return Execute(_started(definition, run, branch_id, node, step, attempt=1))


def _continue(
    definition: Definition, run: Run, branch_id: str, node: Node, opened: OpenStep, now_us: int
) -> Action:
    """A step that has started: the state of its last attempt decides."""
    if opened.calls is not None and opened.calls.lost:
        return _in_doubt(run, opened)
    match opened.state:
        case AttemptState.HELD:
            return _held(definition, run, branch_id, node, opened, now_us)
        case AttemptState.RETRYING:
            if opened.retry_at_us is not None and opened.retry_at_us > now_us:
                return Sleep(opened.retry_at_us, opened.step)
            return Execute(
                _started(definition, run, branch_id, node, opened.step, attempt=opened.attempt + 1)
            )
        case AttemptState.FAILED:
            detail, reason = f"step {opened.step}: {opened.reason}", opened.stop or "step_failed"
            return stop_with(run, RunFailed(reason=reason, detail=detail, step=opened.step))
        case AttemptState.OPEN if opened.token == run.token:
            raise AssertionError(f"{opened.step} is being executed under token {run.token}")
        case _:
            return _abandoned(definition, run, branch_id, node, opened)


def _abandoned(definition: Definition, run: Run, branch_id: str, node: Node, opened: OpenStep) -> Action:
    """An attempt that started and never finished keeps its number, if it may run again."""
    if opened.repeatable:
        return Execute(_started(definition, run, branch_id, node, opened.step, attempt=opened.attempt))
    return _in_doubt(run, opened)


def _in_doubt(run: Run, opened: OpenStep) -> Action:
    detail = f"step {opened.step} was cut off and must not be repeated blindly"
    if opened.calls is not None and opened.calls.lost:
        calls = ", ".join(opened.calls.lost)
        detail = f"step {opened.step} was cut off in {calls}, which must not be repeated blindly"
    if opened.state is AttemptState.INTERRUPTED:
        detail += f": {opened.reason}"
    return stop_with(run, RunInterrupted(reason="in_doubt", detail=detail))


def _held(
    definition: Definition, run: Run, branch_id: str, node: Node, opened: OpenStep, now_us: int
) -> Action:
    """An attempt that stopped between two calls: it continues, or the run stops for the same reason."""
    if opened.held == HELD_AT_GATE:
        asked = [run.gates[name] for name in opened.gates if name in run.gates]
        if asked and all(gate.decided is None for gate in asked) and len(asked) == len(opened.gates):
            return unanswered(run, asked, now_us)
    is_due = opened.retry_at_us is not None and opened.retry_at_us <= now_us
    if opened.held == RATE_LIMIT and not is_due:
        if opened.retry_at_us is None or opened.holds > HOLDS_MAX:
            return stop_with(run, RunInterrupted(reason=RATE_LIMIT, detail=opened.reason))
        return Sleep(opened.retry_at_us, opened.step)
    if opened.held == LIMIT and not is_due:
        detail = f"step {opened.step}: {opened.reason}"
        return stop_with(run, RunInterrupted(reason=LIMIT, detail=detail, wake_at_us=opened.retry_at_us))
    return Execute(_started(definition, run, branch_id, node, opened.step, attempt=opened.attempt))


def _started(
    definition: Definition, run: Run, branch_id: str, node: Node, step: str, *, attempt: int
) -> StepStarted:
    started = StepStarted(step=step, node=node.id, attempt=attempt, repeatable=node.repeatable)
    kind = definition.kind(node.id)
    if kind == AGENT:
        opened = run.open_steps.get(step)
        shown = shown_to(
            definition.graph,
            run.branches[branch_id],
            branch_id,
            node,
            stored=run.threads,
            continues=opened is not None and opened.calls is not None and opened.calls.thread != "",
        )
        return replace(
            started,
            fidelity=shown.fidelity,
            degraded_from=shown.degraded_from,
            thread=shown.thread,
            steering=len(run.steering),
        )
    if kind == MANAGER:
        # Called again, it finds the same child, so nothing is ever in doubt.
        return replace(started, repeatable=True, child=_child(run, step))
    return started


def _child(run: Run, step: str) -> str:
    """The run that a managing step manages: named when the step starts, the same on every attempt."""
    opened = run.open_steps.get(step)
    return (opened and opened.child) or child_run_id(run.id, step, run.updated_at_us)


def _pass_start(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    onward = definition.only_transition(node.id) or next_transition(
        definition.graph,
        node.id,
        SUCCEEDED,
        context_after(run.branches[branch_id].context, SUCCEEDED, {}, {}),
    )
    return passed(run, branch_id, node, SUCCEEDED, onward)


def _pass_exit(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    """Gates are judged before the exit counts as reached."""
    end = _end(definition, run)
    if not (isinstance(end, Stop) and isinstance(end.events[0], RunCompleted)):
        return end
    return passed(run, branch_id, node, SUCCEEDED, None)


def _pass_conditional(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    """The outcome that came in goes out: a conditional node is where others' outcomes are routed."""
    branch = run.branches[branch_id]
    came_in = branch.context.get("outcome", StepStatus.SUCCESS.value)
    if came_in not in ROUTED:
        detail = f"the context says outcome={came_in!r}, and {node.id} can route only {', '.join(ROUTED)}"
        return stop_with(run, RunFailed(reason="pipeline_error", detail=detail))
    outcome = Outcome(status=StepStatus(came_in), preferred_label=branch.label)
    onward = next_transition(definition.graph, node.id, outcome, branch.context)
    if came_in == StepStatus.FAIL.value and not definition.graph.outgoing(node.id):
        return failed(run, f"a failure reached {node.id}, which has no edges")
    return passed(run, branch_id, node, outcome, onward)


_RULES: Mapping[str, Callable[[Definition, Run, str, Node, int], Action]] = {
    START: _pass_start,
    EXIT: _pass_exit,
    CONDITIONAL: _pass_conditional,
    PARALLEL: fan_out,
    FAN_IN: fan_in,
    GATE: open_gate,
}
"""What a planner node does when a branch reaches it. One that waits, like a gate, appends that it does, and
`plan_branch` looks at it the next time."""

"""What one branch of a run does next: the main branch (`""`), or one that a fan-out opened.

An agent step is shown some of the past (`shown_to`). `full` means the same session. A conversation that is
stored with the run survives every process. A live session outside does not: so the first agent step of each
branch after a resume that would be `full`, and whose conversation is not stored, is shown a detailed
summary instead; what happened is recorded with the attempt, and the step after it is free again.

At a `loop_restart` edge the run ends, and a new one, linked to it, begins at the edge's target.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from onward.machine import reasons
from onward.machine.definition import (
    AGENT,
    AGENT_VISITS,
    CONDITIONAL,
    EXIT,
    GATE,
    MANAGER,
    START,
    Definition,
)
from onward.machine.fold.calls import CHILD, LIMIT, RATE_LIMIT, WAIT
from onward.machine.fold.calls import GATE as HELD_AT_GATE
from onward.machine.fold.steps import context_after
from onward.machine.path import likely_path
from onward.machine.plan.action import (
    Action,
    Append,
    Execute,
    Restart,
    Sleep,
    Stop,
    failed,
    next_step,
    passed,
    stop_with,
)
from onward.machine.plan.nodes import at_gate, fan_in, fan_out, open_gate, unanswered
from onward.machine.plan.route import (
    goal_transition,
    is_stuck,
    last_step,
    next_transition,
    transition_now,
    unmet_gate,
    why_stuck,
)
from onward.model import events as ev
from onward.model.ids import child_run_id, derived_run_id, place, step_id
from onward.model.run import AttemptState, Branch, Frozen, Gate, OpenStep, Run
from onward.pipeline.branches import FAN_IN, PARALLEL
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.rules.attributes import DEFAULT_FIDELITY, FIDELITIES

SUCCEEDED = ev.Outcome(status=ev.StepStatus.SUCCESS)
HOLDS_MAX = 20
"""How often in a row a run continues by itself after a provider asked to come back later."""
# What a finished step can hand to a conditional node: it was not skipped, and it is not tried again.
ROUTED = (ev.StepStatus.SUCCESS.value, ev.StepStatus.PARTIAL_SUCCESS.value, ev.StepStatus.FAIL.value)


def has_arrived(definition: Definition, branch: Branch) -> bool:
    """Whether a branch stands at the exit, or nothing follows from where it is."""
    return branch.next_node is None or branch.next_node == definition.graph.exit_id


def plan_branch(definition: Definition, run: Run, branch_id: str, now_us: int) -> Action:
    """The next thing for this branch, as if it were alone."""
    node_id = run.branches[branch_id].next_node
    if node_id is None:
        return _after_last(definition, run, branch_id)
    node = definition.graph.nodes.get(node_id)
    if node is None:
        detail = f"the pipeline no longer has node {node_id!r}; resume with --original or --from"
        return stop_with(run, ev.RunFailed(reason=reasons.PIPELINE_ERROR, detail=detail))
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
        return Append((ev.StepRouted(step=step, next=onward),))
    detail = why_stuck(definition, run, branch_id)
    return stop_with(run, ev.RunFailed(reason=reasons.NO_WAY_ON, detail=detail, step=step))


def _end(definition: Definition, run: Run, *, ended_at: str = "") -> Action:
    """The exit, or a node without edges (`ended_at`): the run is completed unless a goal gate is unmet."""
    gate = unmet_gate(definition, run)
    if gate is None:
        return Stop((ev.RunCompleted(ended_at=ended_at),))
    back = goal_transition(definition.graph, gate)
    if back is None:
        detail = f"goal gate {gate} ended as {run.outcomes[gate]} and has no retry_target"
        return stop_with(run, ev.RunFailed(reason=reasons.GOAL_UNMET, detail=detail, step=gate))
    if run.reroutes >= definition.max_reroutes:
        detail = f"goal gate {gate} is still unmet after {run.reroutes} redirects (max_reroutes)"
        return stop_with(run, ev.RunFailed(reason=reasons.GOAL_UNMET, detail=detail, step=gate))
    return Append((ev.GoalRedirected(gate=gate, next=back),))


def _enter(definition: Definition, run: Run, branch_id: str, node: Node, visits: int, now_us: int) -> Action:
    """A node that has not begun: its next visit, after so many."""
    too_often = visited_too_often(definition, run, node, visits) if visits else None
    if too_often is not None:
        return stop_with(run, too_often)
    if run.steps_finished >= definition.max_steps:
        detail = f"the run has finished {run.steps_finished} steps (max_steps)"
        return stop_with(run, ev.RunFailed(reason=reasons.PIPELINE_ERROR, detail=detail))
    if definition.restarts and run.branches[branch_id].edge in definition.restarts:
        return restart(definition, run, branch_id, node)
    rule = _RULES.get(definition.kind(node.id))
    if rule is not None:
        return rule(definition, run, branch_id, node, now_us)
    step = step_id(node.id, visits + 1, branch_id)
    return Execute(_started(definition, run, branch_id, node, step, attempt=1))


def visited_too_often(definition: Definition, run: Run, node: Node, visits: int) -> ev.Event | None:
    """The stop of a run that may not visit the node once more; None if it may.

    What the pipeline says is a rule of it, and the run fails. Where it says nothing, a node that asks a
    model, or has such a node in a branch, has a ceiling of the run's own, which a person may raise; nothing
    is asked in a simulation.
    """
    written = definition.written_visits(node)
    is_own = written is None and run.simulation is None and node.id in definition.asking
    ceiling = AGENT_VISITS if is_own else definition.max_visits if written is None else written
    if visits < max(ceiling, run.max_visits):
        return None
    if not is_own:
        detail = f"node {node.id} was visited {visits} times (max_visits)"
        return ev.RunFailed(reason=reasons.PIPELINE_ERROR, detail=detail)
    detail = (
        f"node {node.id} was visited {visits} times, the most for a node that asks a model, unless "
        "the run is allowed more"
    )
    return ev.RunInterrupted(reason=reasons.LIMIT, detail=detail)


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
            detail, reason = f"step {opened.step}: {opened.reason}", opened.stop or reasons.STEP_FAILED
            return stop_with(run, ev.RunFailed(reason=reason, detail=detail, step=opened.step))
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
    if opened.state is not AttemptState.OPEN and opened.reason:
        detail += f": {opened.reason}"
    return stop_with(run, ev.RunInterrupted(reason=reasons.IN_DOUBT, detail=detail))


def _held(
    definition: Definition, run: Run, branch_id: str, node: Node, opened: OpenStep, now_us: int
) -> Action:
    """An attempt that stopped between two calls: it continues, or the run stops for the same reason."""
    if opened.held == HELD_AT_GATE:
        asked = [run.gates[name] for name in opened.gates if name in run.gates]
        if asked and all(gate.decided is None for gate in asked) and len(asked) == len(opened.gates):
            return unanswered(run, asked, now_us)
    is_due = opened.retry_at_us is not None and opened.retry_at_us <= now_us
    if opened.held == WAIT and not is_due:
        asked = [run.gates[name] for name in opened.gates if name in run.gates]
        if all(gate.decided is None for gate in asked) and len(asked) == len(opened.gates):
            return _parked(run, opened, asked, now_us)
    if opened.held == CHILD and not is_due:
        return stop_with(run, ev.RunInterrupted(reason=reasons.CHILD, detail=opened.reason))
    if opened.held == RATE_LIMIT and not is_due:
        if opened.retry_at_us is None or opened.holds > HOLDS_MAX:
            return stop_with(run, ev.RunInterrupted(reason=reasons.RATE_LIMIT, detail=opened.reason))
        return Sleep(opened.retry_at_us, opened.step)
    if opened.held == LIMIT and not is_due:
        detail = f"step {opened.step}: {opened.reason}"
        return stop_with(
            run, ev.RunInterrupted(reason=reasons.LIMIT, detail=detail, wake_at_us=opened.retry_at_us)
        )
    return Execute(_started(definition, run, branch_id, node, opened.step, attempt=opened.attempt))


def _parked(run: Run, opened: OpenStep, asked: Sequence[Gate], now_us: int) -> Action:
    """A flow all of whose branches wait: for the first of an answer, a deadline and a time."""
    action = unanswered(run, asked, now_us)
    if opened.retry_at_us is None or not isinstance(action, Stop):
        return action
    (waiting,) = action.events[-1:]
    if not isinstance(waiting, ev.RunWaiting):
        return action
    wake_us = min(opened.retry_at_us, waiting.wake_at_us or opened.retry_at_us)
    return stop_with(run, ev.RunWaiting(wake_at_us=wake_us))


def _started(
    definition: Definition, run: Run, branch_id: str, node: Node, step: str, *, attempt: int
) -> ev.StepStarted:
    started = ev.StepStarted(step=step, node=node.id, attempt=attempt, repeatable=node.repeatable)
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
    if not (isinstance(end, Stop) and isinstance(end.events[0], ev.RunCompleted)):
        return end
    return passed(run, branch_id, node, SUCCEEDED, None)


def _pass_conditional(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    """The outcome that came in goes out: a conditional node is where others' outcomes are routed."""
    branch = run.branches[branch_id]
    came_in = branch.context.get("outcome", ev.StepStatus.SUCCESS.value)
    if came_in not in ROUTED:
        detail = f"the context says outcome={came_in!r}, and {node.id} can route only {', '.join(ROUTED)}"
        return stop_with(run, ev.RunFailed(reason=reasons.PIPELINE_ERROR, detail=detail))
    outcome = ev.Outcome(status=ev.StepStatus(came_in), preferred_label=branch.label)
    onward = next_transition(definition.graph, node.id, outcome, branch.context)
    if came_in == ev.StepStatus.FAIL.value and not definition.graph.outgoing(node.id):
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


FULL, DEGRADED = "full", "summary:high"


class Shown(Frozen, frozen=True):
    """What an agent step is shown: the mode, the mode it lost, and the key of its conversation."""

    fidelity: str = ""
    degraded_from: str = ""
    thread: str = ""


def shown_to(
    graph: Graph, branch: Branch, branch_id: str, node: Node, *, stored: Container[str], continues: bool
) -> Shown:
    """For the node's next attempt in the branch `branch_id`.

    `stored` are the threads whose conversation the run has; the attempt `continues` one of the step's own.

    A step that was to be `full` and is not has its thread all the same: its new session takes the place of
    the lost one, and the next step under this key continues from there.
    """
    edge = _came_by(graph, branch, node)
    mode = _mode(graph, edge, node)
    if mode != FULL:
        return Shown(mode)
    thread = _thread(graph, branch, branch_id, edge, node)
    is_lost = branch.first_hop and not continues and thread not in stored
    return Shown(DEGRADED, FULL, thread) if is_lost else Shown(FULL, "", thread)


def _mode(graph: Graph, edge: Edge | None, node: Node) -> str:
    """The edge's, the node's or the graph's; one that does not exist counts as the default, as lint says."""
    on_edge = edge.text("fidelity") if edge else ""
    mode = on_edge or node.text("fidelity") or graph.text("default_fidelity")
    return mode if mode in FIDELITIES else DEFAULT_FIDELITY


def _thread(graph: Graph, branch: Branch, branch_id: str, edge: Edge | None, node: Node) -> str:
    """The key of the conversation. Inside a branch it is the branch's own: two of them never share one."""
    key = (
        node.text("thread_id")
        or (edge.text("thread_id") if edge else "")
        or graph.text("default_thread_id")
        or next(iter(node.derived), "")
        or branch.previous
        or node.id
    )
    return place(key, branch_id)


def _came_by(graph: Graph, branch: Branch, node: Node) -> Edge | None:
    """The edge that led here; None after a jump."""
    if branch.edge is None:
        return None
    edges = [edge for edge in graph.outgoing(branch.previous) if edge.target == node.id]
    # The place is from the definition of that time; if it changed since, an only edge is still the one.
    came_by = [edge for edge in edges if edge.order == branch.edge] or (edges if len(edges) == 1 else [])
    return came_by[0] if came_by else None


# How the old run went, which says nothing about the new one.
_OWN_KEYS = frozenset({"outcome", "preferred_label", "last_stage", "last_response"})
_OWN_PREFIXES = ("human.gate.", "parallel.", "internal.", "stack.child.")


def restart(definition: Definition, run: Run, branch_id: str, node: Node) -> Action:
    """End the run here, unless this is a branch or has happened too often."""
    if branch_id:
        detail = f"the loop_restart edge to {node.id} is inside a parallel branch, which cannot end the run"
        return stop_with(run, ev.RunFailed(reason=reasons.PIPELINE_ERROR, detail=detail))
    if run.restarts >= definition.max_restarts:
        detail = f"loop_restart started {run.restarts} runs in a row (max_restarts)"
        return stop_with(run, ev.RunFailed(reason=reasons.PIPELINE_ERROR, detail=detail))
    # Planning this again after a crash gives the same id, and finds the run that was created.
    step = next_step(run, node.id, branch_id)
    return Restart(node.id, derived_run_id(run.created_at_us, f"{run.id}/{step}"))


def restarted(definition: Definition, run: Run, to: str, version: str) -> ev.RunCreated:
    """The first event of the run that takes over: the same pipeline and policy, fresh counters."""
    context = _carried(definition.edge(run.root.edge), run)
    return ev.RunCreated(
        pipeline=run.pipeline,
        pipeline_hash=run.pipeline_hash,
        start_node=to,
        path=run.path,
        on_owner_loss=run.on_owner_loss,
        exclusive_key=run.exclusive_key,
        simulation=None if run.simulation is None else run.simulation.script,
        simulates_tools=run.simulation is not None and not run.simulation.real_tools,
        version=version,
        priority=run.priority,
        needs=run.needs,
        max_running=run.max_running,
        context=context,
        restart_of=run.id,
        restarts=run.restarts + 1,
        managed_by=run.managed_by,
        workdir=run.workdir,
        variables=run.variables,
        workspace=replace(run.workspace, start=run.root.tree) if run.workspace and run.root.tree else None,
        trims_output=run.trims_output,
        tags=run.tags,
        chat=run.chat,
        project=run.project,
        charged_to=run.charged_to or run.id,
        pipeline_version=run.pipeline_version,
        max_visits=run.max_visits,
        plan=likely_path(definition, to, context),
    )


def _carried(edge: Edge | None, run: Run) -> dict[str, Any]:
    """What the edge names in `loop_restart_keep`; else everything but the engine's own keys."""
    context = run.context.plain()
    named = edge.text("loop_restart_keep") if edge else ""
    if named:
        keep = {key.strip() for key in named.split(",")}
        return {key: value for key, value in context.items() if key in keep or key.startswith("graph.")}
    return {
        key: value
        for key, value in context.items()
        if key not in _OWN_KEYS and not key.startswith(_OWN_PREFIXES)
    }

"""Folding steps and attempts, the branches of fan-outs, and questions with their answers.

The branches of a fan-out are opened together, end one by one, and are removed when they are joined. The
rows by which open questions are found are made here, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import asdict, replace

from onward.machine.fold.calls import begun_again, steering_taken, with_calls, with_running
from onward.machine.fold.changes import Changes, IllegalEvent, without
from onward.machine.plan.route import MET
from onward.machine.ticks import begun as begun_tick
from onward.machine.ticks import ended as ended_tick
from onward.model import events as ev
from onward.model.context import FrozenMap, grow
from onward.model.gate import GateDecided, GateOpened, GateWithdrawn
from onward.model.ids import (
    branch_of,
    is_in_step,
    node_of,
    place,
    place_of,
    step_id,
    step_of_gate,
    whereabouts,
)
from onward.model.result import excerpt
from onward.model.row import GateRow
from onward.model.run import AttemptState, Branch, Gate, OpenStep, Parallel, Run, RunStatus

FINISHED_MAX = 100
"""How many of the steps that finished the state of a run names."""
# A member of an enum is looked up each time it is named, and these are named for every step.
SKIPPED, OPEN = ev.StepStatus.SKIPPED, AttemptState.OPEN


def context_after(
    context: FrozenMap[Any], outcome: ev.Outcome, fresh: Mapping[str, Any], grown: Mapping[str, Any]
) -> FrozenMap[Any]:
    """A branch's context when a step has finished: its changes, and the engine's own keys."""
    changes = dict(fresh)
    if grown:
        changes.update((key, grow(context[key], tail)) for key, tail in grown.items())
    if outcome.status is not SKIPPED:
        changes["outcome"] = str(outcome.status)
        if outcome.preferred_label:
            changes["preferred_label"] = outcome.preferred_label
    return context.with_all(changes)


def step_started(run: Run, event: ev.StepStarted, at_us: int) -> Changes:
    before, (at, branch_id) = run.open_steps.get(event.step), whereabouts(event.step)
    changes: Changes = {}
    begun = OpenStep(
        step=event.step,
        node=event.node,
        attempt=event.attempt,
        token=run.token,
        state=OPEN,
        repeatable=event.repeatable,
        fidelity=event.fidelity,
        child=event.child,
        began_at_us=at_us,
        thread=event.thread,
        opened_at_us=at_us if before is None else before.opened_at_us,
    )
    if before is None:
        changes["visits"] = run.visits.with_(at, _new_visit(run, event, at, branch_id))
        changes["ticks"] = begun_tick(run.ticks, event.step, event.node)
    elif before.state is OPEN and before.token == run.token:
        raise IllegalEvent(run.status, event, f"step {event.step} is already open under token {run.token}")
    else:
        tries = before.tries + 1 if before.attempt == event.attempt else 1
        begun = replace(
            begun,
            retries_spent=before.retries_spent,
            tries=tries,
            starts=before.starts + 1,
            worked_us=before.worked_us,
            steering=before.steering,
            calls=begun_again(before, run.head, event.attempt),
            holds=before.holds,
        )
    if event.steering:
        begun = replace(begun, steering=(*begun.steering, *steering_taken(run, event)))
        changes["steering"] = run.steering[event.steering :]
    if before is None or before.attempt != event.attempt:
        changes["executions"] = run.executions.with_(at, run.executions.get(at, 0) + 1)
    if run.restore_workspace:
        changes["restore_workspace"] = False
    changes["open_steps"] = {**run.open_steps, event.step: begun}
    return changes


def _new_visit(run: Run, event: ev.StepStarted | ev.StepFinished, at: str, branch_id: str) -> int:
    """A step begins as the next visit of its node; any other would be one that has its outcome already."""
    visit = run.visits.get(at, 0) + 1
    if branch_id not in run.branches:
        raise IllegalEvent(run.status, event, f"step {event.step} belongs to no branch of this run")
    if event.step != step_id(event.node, visit, branch_id):
        visit = run.visits.get(place(event.node, branch_id), 0) + 1
        raise IllegalEvent(run.status, event, f"step {event.step} is not visit {visit} of node {event.node}")
    return visit


def _open_step(run: Run, event: ev.AttemptFailed | ev.AttemptInterrupted) -> OpenStep:
    found = run.open_steps.get(event.step)
    if found is None or found.attempt != event.attempt or found.state is not OPEN:
        raise IllegalEvent(run.status, event, f"step {event.step} has no open attempt {event.attempt}")
    return found


def attempt_failed(run: Run, event: ev.AttemptFailed, at_us: int) -> Changes:
    before = _open_step(run, event)
    again = event.retry_at_us is not None
    spent = before.retries_spent + (1 if again else 0)
    failed = replace(
        before,
        state=AttemptState.RETRYING if again else AttemptState.FAILED,
        retries_spent=spent,
        retry_at_us=event.retry_at_us,
        reason=event.reason,
        worked_us=_worked_us(before, at_us),
        stop=event.stop,
    )
    if before.calls is not None and not event.keeps_calls:
        failed = replace(failed, calls=replace(before.calls, forgets=True))
    changes: Changes = {"open_steps": {**run.open_steps, event.step: failed}}
    if run.gates and not event.keeps_calls:
        changes |= without_gates_of(run, event.step)
    if again:
        changes["retries"] = run.retries.with_(place_of(event.step), spent)
    return changes


def attempt_interrupted(run: Run, event: ev.AttemptInterrupted, at_us: int) -> Changes:
    before = _open_step(run, event)
    # The next attempt begins with what its node says, so this lasts until a person has decided.
    repeatable = before.repeatable and not event.in_doubt
    stopped = replace(
        before,
        state=AttemptState.INTERRUPTED,
        reason=event.why,
        repeatable=repeatable,
        worked_us=_worked_us(before, at_us),
    )
    if event.running:
        stopped = replace(stopped, calls=with_running(run, before, event.running))
    return {"open_steps": {**run.open_steps, event.step: stopped}}


def _worked_us(before: OpenStep, at_us: int) -> int:
    """How long a step has worked when its try ends; the wall clock may have been set back."""
    return before.worked_us + max(0, at_us - before.began_at_us)


def step_finished(run: Run, event: ev.StepFinished, at_us: int) -> Changes:
    step = event.step
    at, branch_id = whereabouts(step)
    branch, opened = run.branches.get(branch_id), run.open_steps.get(step)
    if branch is None:
        raise IllegalEvent(run.status, event, f"step {step} belongs to no branch of this run")
    changes: Changes = {
        "branches": {**run.branches, branch_id: _moved(run, branch, opened, event)},
        "steps_finished": run.steps_finished + 1,
        "finished": (*run.finished[1 - FINISHED_MAX :], step),
        "ticks": ended_tick(run.ticks, step, event.node, event.outcome.status),
    }
    if opened is not None:
        changes["open_steps"] = without(run.open_steps, step)
        if run.gates:
            changes |= without_gates_of(run, step)
        if opened.calls is not None and opened.calls.thread and opened.thread:
            changes["threads"] = run.threads.with_(opened.thread, opened.calls.thread)
    elif step in run.gates:
        changes["gates"] = without(run.gates, step)
    elif step in run.parallels:
        changes.update(parallel_joined(run, event, changes["branches"]))
    else:
        changes["visits"] = run.visits.with_(at, _new_visit(run, event, at, branch_id))
    if event.outcome.status is not SKIPPED:
        outcomes = changes.get("outcomes", run.outcomes)
        changes["outcomes"] = outcomes.with_(at, str(event.outcome.status))
    if step in run.directives:
        changes["directives"] = without(run.directives, step)
    if at in run.retries:
        changes["retries"] = changes.get("retries", run.retries).without(at)
    if run.losses:
        changes["losses"] = 0
    if event.artifacts:
        changes["artifacts"] = _kept(run.artifacts, event.artifacts)
    return changes


def _kept(
    before: FrozenMap[ev.Artifact], changes: Mapping[str, ev.Artifact | None]
) -> FrozenMap[ev.Artifact]:
    """A run's artifacts when a step has stored some and removed others."""
    for name in (name for name, artifact in changes.items() if artifact is None):
        before = before.without(name)
    return before.with_all({name: artifact for name, artifact in changes.items() if artifact is not None})


def _moved(run: Run, branch: Branch, opened: OpenStep | None, event: ev.StepFinished) -> Branch:
    outcome, onward = event.outcome, event.next
    try:
        context = context_after(branch.context, outcome, event.context, event.grown)
    except (KeyError, TypeError):
        why = f"step {event.step} adds to a context value that is missing or of another type"
        raise IllegalEvent(run.status, event, why) from None
    return replace(
        branch,
        context=context,
        next_node=onward.to if onward else None,
        edge=onward.edge if onward else None,
        previous=event.node,
        label=branch.label if outcome.status is SKIPPED else outcome.preferred_label,
        reason=outcome.failure_reason,
        suggested=() if onward else outcome.suggested_next_ids,
        first_hop=branch.first_hop and not _has_hopped(opened, event),
        response=excerpt(event.response) if event.response else branch.response,
        tree=event.workspace or branch.tree,
    )


def _has_hopped(opened: OpenStep | None, event: ev.StepFinished) -> bool:
    """Whether this was an agent's step, and an agent worked in it: only those have a session."""
    return opened is not None and opened.fidelity != "" and event.outcome.status is not SKIPPED


def step_routed(run: Run, event: ev.StepRouted, at_us: int) -> Changes:
    branch_id = branch_of(event.step)
    branch = run.branches.get(branch_id)
    if branch is None or branch.next_node is not None or branch.ended:
        raise IllegalEvent(run.status, event, f"step {event.step} is not where its branch ended")
    moved = replace(branch, next_node=event.next.to, edge=event.next.edge, suggested=())
    return {"branches": {**run.branches, branch_id: moved}}


def goal_redirected(run: Run, event: ev.GoalRedirected, at_us: int) -> Changes:
    moved = replace(run.root, next_node=event.next.to, edge=event.next.edge)
    return {"branches": {**run.branches, "": moved}, "reroutes": run.reroutes + 1}


T = TypeVar("T")


def parallel_started(run: Run, event: ev.ParallelStarted, at_us: int) -> Changes:
    parent = run.branches.get(branch_of(event.step))
    if parent is None or event.step in run.parallels:
        raise IllegalEvent(
            run.status, event, f"{event.step} has no branch to fan out from, or already has branches"
        )
    opened = {
        plan.path: Branch(
            context=parent.context,
            next_node=plan.to,
            edge=plan.edge,
            previous=event.node,
            response=parent.response,
            tree=parent.tree,
        )
        for plan in event.branches
    }
    at = place_of(event.step)
    parallel = Parallel(
        step=event.step,
        node=event.node,
        branches=tuple(opened),
        join=event.join,
        policy=event.policy,
        max_parallel=event.max_parallel,
        began_at_us=at_us,
    )
    return {
        "branches": {**run.branches, **opened},
        "parallels": {**run.parallels, event.step: parallel},
        "visits": run.visits.with_(at, run.visits.get(at, 0) + 1),
        "ticks": begun_tick(run.ticks, event.step, event.node),
    }


def branch_finished(run: Run, event: ev.BranchFinished, at_us: int) -> Changes:
    branch = run.branches.get(event.branch)
    if not event.branch or branch is None or branch.ended:
        raise IllegalEvent(run.status, event, f"there is no unfinished branch {event.branch}")
    _check_nothing_open(run, event, (event.branch,))
    ended = replace(branch, ended=event.status, reason=event.reason)
    return {
        "branches": {**run.branches, event.branch: ended},
        # What was tried and not finished, as when the branch lost the race, is over with it.
        "open_steps": {s: opened for s, opened in run.open_steps.items() if branch_of(s) != event.branch},
        "gates": {n: gate for n, gate in run.gates.items() if branch_of(step_of_gate(n)) != event.branch},
    }


def parallel_joined(run: Run, event: ev.StepFinished, branches: Mapping[str, Branch]) -> Changes:
    """A fan-out has its outcome: its branches are removed, and nothing may be left open in them."""
    gone = run.parallels[event.step].branches
    _check_nothing_open(run, event, gone)
    if any(not run.branches[branch_id].ended for branch_id in gone):
        raise IllegalEvent(run.status, event, f"{event.step} has branches that have not ended")
    return {
        "branches": {branch_id: branch for branch_id, branch in branches.items() if branch_id not in gone},
        "parallels": without(run.parallels, event.step),
        **drop_branches(run, gone, onto=branch_of(event.step)),
    }


def drop_branches(run: Run, gone: Collection[str], *, onto: str) -> Changes:
    """What branches that have ended leave to the branch `onto`: the last outcome of every node they visited.

    Where several of them visited one node, an outcome that meets no goal counts before one that does. Their
    visits and attempts are dropped: no branch ever has the same id again, and a loop may open any number of
    them.
    """
    found: dict[str, dict[str, str]] = {branch_id: {} for branch_id in gone}
    for at, status in run.outcomes.items():
        if (branch_id := branch_of(at)) in found:
            found[branch_id][place(node_of(at), onto)] = status
    left: dict[str, str] = {}
    for outcomes in found.values():
        left |= {at: status for at, status in outcomes.items() if left.get(at, MET[0]) in MET}
    return {
        "outcomes": _without_branches(run.outcomes, found).with_all(left),
        "visits": _without_branches(run.visits, found),
        "executions": _without_branches(run.executions, found),
        "retries": _without_branches(run.retries, found),
    }


def _without_branches(places: FrozenMap[T], gone: Collection[str]) -> FrozenMap[T]:
    return FrozenMap({at: value for at, value in places.items() if branch_of(at) not in gone})


def _check_nothing_open(run: Run, event: ev.Event, branch_ids: tuple[str, ...]) -> None:
    attempts = [s for s, step in run.open_steps.items() if step.state is AttemptState.OPEN]
    gates = [step_of_gate(name) for name, gate in run.gates.items() if gate.decided is None]
    inside = [step for step in run.parallels if branch_of(step) in branch_ids]
    left = [name for name in (*attempts, *gates) if branch_of(name) in branch_ids] + inside
    if left:
        raise IllegalEvent(run.status, event, f"{event.kind} leaves something open: {', '.join(left)}")


ASKING = frozenset({GateOpened, GateDecided, GateWithdrawn, ev.RunForked})


def gate_opened(run: Run, event: GateOpened, at_us: int) -> Changes:
    if event.gate in run.gates:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is already open")
    changes: Changes = {"gates": {**run.gates, event.gate: _gate(event, at_us)}}
    if is_in_step(event.gate):
        asking = run.open_steps.get(step_of_gate(event.gate))
        if asking is None or asking.state is not AttemptState.OPEN:
            raise IllegalEvent(run.status, event, f"gate {event.gate} has no open attempt that asks")
        return changes | with_calls(run, asking) if event.stays else changes
    at = place_of(event.gate)
    visits = run.visits.with_(at, run.visits.get(at, 0) + 1)
    return changes | {"visits": visits, "ticks": begun_tick(run.ticks, event.gate, event.node)}


def _gate(event: GateOpened, at_us: int) -> Gate:
    return Gate(**asdict(event), opened_at_us=at_us)  # it has every field of its event


def gate_decided(run: Run, event: GateDecided, at_us: int) -> Changes:
    gate = run.gates.get(event.gate)
    if gate is None or gate.decided is not None:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is not open")
    answered = replace(
        gate,
        decided=event.choice,
        by=event.by,
        answer=event.text,
        rejected=event.rejected,
        expired=event.expired,
    )
    changes: Changes = {"gates": {**run.gates, event.gate: answered}}
    if run.status is RunStatus.WAITING:
        changes["wake_at_us"] = at_us
    return changes


def gates_of_step(run: Run, step: str) -> list[Gate]:
    """The gates that the calls of a step have opened, and that are still known."""
    return [gate for name, gate in run.gates.items() if is_in_step(name) and step_of_gate(name) == step]


def without_gates_of(run: Run, step: str) -> Changes:
    """The gates without those that the calls of a step opened: their answers are not needed any more."""
    gone = {gate.gate for gate in gates_of_step(run, step)}
    return {"gates": {name: gate for name, gate in run.gates.items() if name not in gone}} if gone else {}


def asked_anew(gates: Mapping[str, Gate], at_us: int) -> dict[str, Gate]:
    """The same questions, asked now: after a fork there is as much time to answer as there was then."""
    return {name: _asked_anew(gate, at_us) for name, gate in gates.items()}


def _asked_anew(gate: Gate, at_us: int) -> Gate:
    if gate.decided is not None:
        return gate
    deadline_us = None if gate.deadline_us is None else at_us + gate.deadline_us - gate.opened_at_us
    return replace(gate, opened_at_us=at_us, deadline_us=deadline_us)


def gate_withdrawn(run: Run, event: GateWithdrawn, at_us: int) -> Changes:
    if event.gate not in run.gates:
        raise IllegalEvent(run.status, event, f"gate {event.gate} is not open")
    return {"gates": without(run.gates, event.gate)}


def gate_rows(before: Run | None, events: Sequence[ev.Event], run: Run, at_us: int) -> tuple[GateRow, ...]:
    """The rows of the gates that these events open or close. They lead from `before` to `run`.

    A fork begins with its own event alone, so what it asks anew is what is open in `run`.
    """
    rows: dict[str, GateRow] = {}
    for event in events:
        if type(event) not in ASKING:  # nearly always
            continue
        match event:
            case GateOpened():
                rows[event.gate] = _gate_row(run, _gate(event, at_us))
            case GateDecided(gate=name) | GateWithdrawn(gate=name):
                known = rows.get(name) or _gate_row(run, (before or run).gates[name])
                by = event.by if isinstance(event, GateDecided) else known.decided_by
                rows[name] = replace(known, decided_by=by, closed_at_us=at_us)
            case _:  # a fork
                rows = {
                    name: _gate_row(run, gate) for name, gate in run.gates.items() if gate.decided is None
                }
    return tuple(rows.values()) if rows else ()


def note_gates(rows: dict[str, GateRow], before: Run | None, event: ev.Event, run: Run, at_us: int) -> None:
    """Bring the rows of a run's gates up to `event`, which leads from `before` to `run`."""
    if type(event) is ev.RunForked:
        rows.clear()  # what was asked before the fork is its parent's
    rows.update((row.gate, row) for row in gate_rows(before, (event,), run, at_us))


def _gate_row(run: Run, gate: Gate) -> GateRow:
    return GateRow(
        run_id=run.id,
        gate=gate.gate,
        pipeline=run.pipeline,
        node=gate.node,
        text=gate.text,
        about=gate.about,
        type=gate.type,
        choices=gate.choices,
        opened_at_us=gate.opened_at_us,
        deadline_us=gate.deadline_us,
        decided_by=gate.by if gate.decided is not None else None,
    )

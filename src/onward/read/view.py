"""Runs as people and programs see them: stable names, plain JSON values, RFC 3339 times.

Also their steps, as `onward show` prints them, from the projection of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, overload

import msgspec
from msgspec.structs import replace

from onward.machine.decide.calls import interruption, is_in_doubt, visits_stop, with_doubt
from onward.machine.reasons import CRASH, is_at_limit, reason_of
from onward.machine.ticks import Tick, read_ticks
from onward.model.chat import chat_of_run
from onward.model.events import WORKTREE, LastOutput, Managed, branch_name
from onward.model.gate import Choice
from onward.model.ids import display_id
from onward.model.limits import VISITS
from onward.model.row import RegisteredWorker, RunRow, WaitingFor, handlers_missing, waiting_for
from onward.model.run import AttemptState, Branch, Gate, OpenStep, Pending, Run, RunStatus
from onward.model.values import rfc3339, tags_in
from onward.read.log import LEFT, Projection, Step, Try
from onward.read.stops import view_stops
from onward.read.why import banner_of, kept_of, now_words
from onward.store.codec import unseal
from onward.store.owner import owner_label
from onward.store.port.leases import Holder
from onward.store.port.log import StoredEvent

if TYPE_CHECKING:
    from onward.replies import runs as run_shapes
    from onward.replies.steps import EventShown, OutputShown, StepShown, TryShown


@overload
def instant(at_us: int) -> str: ...
@overload
def instant(at_us: int | None) -> str | None: ...
def instant(at_us: int | None) -> str | None:
    """A time as RFC 3339, UTC."""
    return None if at_us is None else rfc3339(at_us)


def view_row(
    row: RunRow,
    holder: Holder | None,
    completed: Sequence[str] | None = None,
    *,
    workers: Sequence[RegisteredWorker] | None = None,
) -> run_shapes.RunListed:
    """A run as lists show it. One whose holder died is shown as interrupted before the log says so.

    `workers` are those who could take it, if it is queued.
    """
    row = known_row(row, holder)
    planned, ticks = known_ticks(row)
    is_queued = row.status is RunStatus.QUEUED and workers is not None
    waiting = waiting_for(row.needs.split(), workers or ()) if is_queued else None
    shown: run_shapes.RunListed = {
        "id": row.id,
        "display_id": row.display_id,
        "pipeline": row.pipeline,
        "status": row.status.value,
        "reason": row.reason,
        "detail": _said(row),
        "recoverable": row.recoverable,
        "completed": list(completed or ()),
        "next": row.next_node,
        "parent": _view_parent(row),
        "steps_finished": row.steps_finished,
        "holder": owner_label(holder.owner) if holder is not None and holder.is_alive else None,
        "path": row.path,
        "pipeline_hash": row.pipeline_hash,
        "exclusive_key": row.exclusive_key,
        "on_owner_loss": row.on_owner_loss,
        "tags": tags_in(row.tags),
        "chat": row.chat or chat_of_run(row.id),
        "is_dismissed": row.is_dismissed,
        "handlers": handlers_missing(row.needs.split(), ()),
        "created_at": instant(row.created_at_us),
        "updated_at": instant(row.updated_at_us),
        "ended_at": instant(row.ended_at_us),
        "ended_at_node": row.ended_at_node,
        "wake_at": instant(row.wake_at_us),
        "waiting_for": None if waiting is None else view_waiting(waiting),
        "head": row.head,
        "step_in_doubt": _step_in_doubt(row),
        "claims": row.token,
        "tokens": row.tokens,
        "cost": row.cost_micro,
        "now": now_words(row, ticks, waiting),
        "ticks": [{"step": tick.step, "state": tick.state} for tick in ticks],
        "steps_planned": planned,
    }
    if completed is None:
        del shown["completed"]
    return shown


_AT_WORK = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)


def known_ticks(row: RunRow) -> tuple[int, Sequence[Tick]]:
    """How many steps the run is likely to have, and the ticks of its row as it is known.

    A step that had begun when the run stopped is interrupted, which the column does not say.
    """
    planned, ticks = read_ticks(row.ticks)
    if not row.ticks:  # it ended before rows had ticks
        return row.steps_finished, ()
    if row.status in _AT_WORK:
        return planned, ticks
    return planned, [tick._replace(state="interrupted") if tick.state == "open" else tick for tick in ticks]


def _view_parent(row: RunRow) -> run_shapes.ForkPoint | None:
    if row.parent is None or row.parent_seq is None:
        return None
    return {"run": row.parent, "seq": row.parent_seq}


def view_waiting(waiting: WaitingFor) -> run_shapes.WaitingForShown:
    """What a queued run waits for that no live worker has."""
    return {
        "workers": waiting.workers,
        "handlers": list(waiting.handlers),
        "directory": waiting.directory,
        "says": waiting.says,
    }


def _said(row: RunRow) -> str:
    """Why the run has its status, for people."""
    if row.ended_at_node is not None:
        return dead_end(row.ended_at_node)
    said = row.detail or reason_of(row.reason).says
    doubtful = _step_in_doubt(row) if row.status is RunStatus.PAUSED else None
    return said if doubtful is None else with_doubt(said, doubtful)


def _step_in_doubt(row: RunRow) -> str | None:
    """The step that a person must decide about; one that is being executed is in no doubt."""
    return None if row.status is RunStatus.RUNNING else row.doubtful


def dead_end(node: str) -> str:
    """Says that a run ended at a node that is not the exit."""
    return f"ended at {node}, which has no outgoing edges and is not the exit"


def known_row(row: RunRow, holder: Holder | None) -> RunRow:
    """The row; that of a run whose holder died becomes interrupted, or in doubt, as a sweep will make it."""
    if row.status is not RunStatus.RUNNING or holder is None or holder.is_alive:
        return row
    stop = interruption(row.doubtful, CRASH, f"{owner_label(holder.owner)} died while it held the run")
    return replace(
        row, status=RunStatus.INTERRUPTED, reason=stop.reason, detail=stop.detail, recoverable=True
    )


class Beside(msgspec.Struct, frozen=True):
    """What is known beside the state of a run: who could take it if it is queued, the limit that stopped it,
    and how the runs stand that it waits for."""

    now_us: int
    limit: run_shapes.LimitStop | None = None
    workers: Sequence[RegisteredWorker] | None = None
    awaits: Mapping[str, RunStatus] = {}


def view_run(
    row: RunRow,
    holder: Holder | None,
    run: Run,
    beside: Beside,
) -> run_shapes.RunState:
    """A run in full: the row, what it finished last, what is open, and its context."""
    known = known_row(row, holder)
    return {
        **view_row(row, holder, run.finished, workers=beside.workers),
        "pipeline_version": run.pipeline_version,
        "simulated": view_simulation(run),
        "project": run.project,
        "context": run.context.plain(),
        "open_steps": [_view_open_step(opened) for opened in run.open_steps.values()],
        "limit": beside.limit,
        "gates": [view_gate(gate) for gate in run.gates.values()],
        "awaits": [
            {"id": id, "display_id": display_id(id), "status": status.value}
            for id, status in beside.awaits.items()
        ],
        "restart_of": run.restart_of,
        "restarted_as": run.restarted_as,
        "branches": [_view_branch(id, branch) for id, branch in run.branches.items() if id],
        "retry_counters": run.retries.plain(),
        "visited_outcomes": run.outcomes.plain(),
        "reroute_count": run.reroutes,
        "pending": _view_pending(run.pending),
        "steering": list(run.steering),
        "managed_by": None if run.managed_by is None else _view_manager(run.managed_by),
        "workdir": run.workdir,
        "variables": list(run.variables),
        "workspace": view_workspace(run),
        "banner": banner_of(known, run, known_ticks(known)[1], beside.limit, beside.now_us),
        "stops": view_stops(run),
        "stops_count": run.stops_count,
        "kept": kept_of(run),
    }


def _view_branch(branch_id: str, branch: Branch) -> run_shapes.BranchShown:
    return {
        "branch": branch_id,
        "next": branch.next_node,
        "ended": branch.ended or None,
        "context": branch.context.plain(),
    }


def _view_pending(pending: Pending) -> run_shapes.PendingShown:
    return {
        "cancel_by": pending.cancel_by,
        "cancel_detail": pending.cancel_detail,
        "cancel_reason": pending.cancel_reason,
        "pause_after": pending.pause_after,
        "pause_by": pending.pause_by,
    }


def _view_manager(managed: Managed) -> run_shapes.ManagerShown:
    shown: run_shapes.ManagerShown = {"run": managed.run, "step": managed.step}
    if managed.depth != 1:
        shown["depth"] = managed.depth
    return shown


def _view_open_step(opened: OpenStep) -> run_shapes.OpenStepShown:
    return {
        "step": opened.step,
        "attempt": opened.attempt,
        "state": opened.state.value,
        "reason": opened.reason,
        "retry_at": instant(opened.retry_at_us),
        "repeatable": opened.repeatable,
        "steering": list(opened.steering),
        "child": opened.child,
    }


def view_limit(run: Run) -> run_shapes.LimitStop | None:
    """The limit that a stopped run waits for, as it was when the run stopped; `used` is what was spent."""
    stop = visits_stop(run)
    if stop is not None:
        return {
            "scope": stop.scope,
            "measure": VISITS,
            "limit": stop.visits,
            "used": stop.visits,
            "reserved": 0,
            "wanted": 1,
            "raise_to": stop.argument,
            "steps_finished": run.steps_finished,
            "steps_open": len(run.open_steps),
        }
    hits = [opened.limit for opened in run.open_steps.values() if opened.limit is not None]
    if not hits or not is_at_limit(run.reason):
        return None
    hit = hits[0]
    return {
        "scope": hit.scope,
        "measure": hit.measure,
        "limit": hit.limit,
        "used": hit.spent,
        "reserved": hit.reserved,
        "wanted": hit.wanted,
        "raise_to": None,
        "steps_finished": run.steps_finished,
        "steps_open": len(run.open_steps),
    }


def view_simulation(run: Run) -> str | None:
    """What is simulated: `all`, or only `agents`; None if everything is executed."""
    if run.simulation is None:
        return None
    return "agents" if run.simulation.real_tools else "all"


def view_workspace(run: Run) -> run_shapes.WorkspaceShown | None:
    """The repository, the run's branch there, and the state at the last checkpoint that changed it."""
    if run.workspace is None:
        return None
    is_own = run.workspace.mode == WORKTREE
    tree = run.root.tree or run.workspace.start
    return {
        "repository": run.workspace.repository,
        "mode": run.workspace.mode,
        "branch": branch_name(run.id) if is_own else tree.branch or None,
        "head": tree.head,
        "commit": tree.commit,
        "ref": tree.ref or None,
    }


def view_choice(choice: Choice) -> run_shapes.ChoiceOffered:
    """What a gate offers, with the data that it has, if any."""
    return {"key": choice.key, "label": choice.label, "to": choice.to, "data": choice.data}


def view_gate(gate: Gate) -> run_shapes.GateShown:
    """A question: what it asks and offers, until when, and what was decided."""
    return {
        "gate": gate.gate,
        "node": gate.node,
        "type": gate.type,
        "text": gate.text,
        "about": gate.about,
        "choices": [view_choice(choice) for choice in gate.choices],
        "content_hash": gate.content_hash,
        "default": gate.default or None,
        "opened_at": instant(gate.opened_at_us),
        "deadline": instant(gate.deadline_us),
        "on_timeout": gate.on_timeout,
        "remind_s": None if gate.remind_us is None else gate.remind_us / 1_000_000,
        "metadata": gate.metadata,
        "decided": gate.decided.key if gate.decided else None,
        "by": gate.by or None,
        "answer": gate.answer,
        "rejected": gate.rejected,
        "expired": gate.expired,
    }


def view_event(record: StoredEvent) -> EventShown:
    """One event, with its number, kind and time before its own fields."""
    fields = msgspec.to_builtins(unseal(record))
    return {
        "seq": record.seq,
        "kind": record.kind,
        "at": instant(record.at_us),
        "token": record.token,
        "run": record.run_id,
        **{key: value for key, value in fields.items() if key != "token"},
    }


def view_steps(log: Projection, run: Run, *, is_held: bool) -> list[StepShown]:
    """Every step in the order in which they started; `is_held`: a living process holds the run."""
    return [view_step(step, state_of(step, run, is_held=is_held)) for step in log.steps.values()]


def state_of(step: Step, run: Run, *, is_held: bool) -> str:
    """The state of a step. The log alone cannot say that the process of an attempt died."""
    if step.ended_at_us is not None:
        return step.state
    if step.step in run.parallels:
        return "waiting" if run.status is RunStatus.WAITING else "running" if is_held else "interrupted"
    if step.step in run.gates:
        return step.state if run.gates[step.step].decided else "waiting"
    opened = run.open_steps.get(step.step)
    if opened is None:
        return step.state
    if is_held and opened.state is AttemptState.OPEN and opened.token == run.token:
        return "running"
    if is_in_doubt(opened):
        return "in_doubt"
    return "interrupted" if opened.state is AttemptState.OPEN else step.state


def view_step(step: Step, state: str) -> StepShown:
    """A step in this state, with its tries."""
    shown: StepShown = {
        "step": step.step,
        "node": step.node,
        "status": state,
        "attempts": step.attempts,
        "started_at": instant(step.started_at_us),
        "finished_at": instant(step.ended_at_us),
        "duration_s": step.duration_s,
        "elapsed_s": step.elapsed_s,
        "reason": "" if step.state == LEFT != state else step.reason,
        "log": list(step.log),
        "tries": [view_try(one) for one in step.tries],
    }
    if step.child is not None:
        shown["child"] = step.child
    if step.decisions:
        decided = step.decisions[-1]
        shown["answer"], shown["by"] = decided.choice.label or decided.text, decided.by
    return shown


def view_output(output: LastOutput | None) -> OutputShown | None:
    """The end of what a try printed, and where its handler raised an error."""
    if output is None:
        return None
    return {
        "lines": [{"stream": line.stream, "text": line.text} for line in output.lines],
        "error": output.error,
        "traceback": output.traceback,
    }


def view_try(one: Try) -> TryShown:
    """One start of an attempt."""
    return {
        "attempt": one.attempt,
        "number": one.number,
        "worker": owner_label(one.claim.worker) if one.claim.worker else None,
        "started_at": instant(one.started_at_us),
        "ended_at": instant(one.ended_at_us),
        "duration_s": one.duration_s,
        "outcome": one.outcome or None,
        "reason": one.reason,
        "output": view_output(one.output),
    }

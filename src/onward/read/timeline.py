"""A run's timeline: rows for its steps, their attempts and calls, and the branches of fan-outs.

Each row has a key that stays the same, so that a page can merge rows that changed, and the key of the row
that it is below: so graphs and functions look alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from onward.machine.ticks import Tick
from onward.model.call import CallKind
from onward.model.ids import branch_of, is_in_step, step_of_gate
from onward.read.log import BranchSeen, Projection, Step, Try
from onward.read.step import CallSeen
from onward.read.view import instant
from onward.read.why import count, step_name
from onward.store.owner import owner_label

if TYPE_CHECKING:
    from onward.replies.steps import TimelineRow

_STATES: Mapping[str, str] = {
    **dict.fromkeys(("success", "partial_success", "decided", "ok", "completed"), "finished"),
    **dict.fromkeys(("fail", "failed", "rejected", "error", "retry"), "failed"),
    **dict.fromkeys(("running", "retrying", "open"), "open"),
    **dict.fromkeys(("interrupted", "held", "in_doubt", "lost"), "interrupted"),
    **dict.fromkeys(("skipped", "withdrawn", "left", "cancelled"), "skipped"),
    "waiting": "waiting",
}
"""The states of rows, by the words of steps, tries, calls and branches."""


def timeline_state(word: str) -> str:
    """The state of a row, of what steps, tries, calls and branches say of themselves."""
    return _STATES.get(word, "finished")


def timeline(
    log: Projection,
    states: Mapping[str, str],
    calls: Sequence[CallSeen],
    ticks: Sequence[Tick],
    *,
    is_held: bool,
) -> list[TimelineRow]:
    """Every row in the order in which it began; planned steps come last.

    `states` has the state of each step as it is shown; `is_held`: a living process holds the run.
    """
    by_step: dict[str, list[CallSeen]] = {}
    for call in calls:
        by_step.setdefault(call.step, []).append(call)
    rows: list[TimelineRow] = []
    for step in log.steps.values():
        rows.append(_step_row(step, states[step.step]))
        rows += _attempts(step, is_held=is_held)
        rows += (_call_row(call, is_held=is_held) for call in by_step.get(step.step, ()))
        rows += (_branch_row(path, log.branches[path]) for path in _paths(step) if path in log.branches)
    rows += _planned(ticks)
    return rows


def _row(key: str, kind: str, label: str, state: str) -> TimelineRow:
    return {
        "key": key,
        "parent": None,
        "kind": kind,
        "label": label,
        "detail": "",
        "state": state,
        "began_at": None,
        "ended_at": None,
        "step": None,
        "tokens": 0,
        "cost": None,
    }


def _step_row(step: Step, state: str) -> TimelineRow:
    spent = step.spent
    is_waiting = state == "held" and any(one.waits for one in step.tries[-1:])
    return {
        **_row(step.step, "step", step_name(step.step), "waiting" if is_waiting else timeline_state(state)),
        "parent": step_of_gate(step.step) if is_in_step(step.step) else branch_of(step.step) or None,
        "detail": _step_detail(step),
        "began_at": instant(step.started_at_us),
        "ended_at": instant(step.ended_at_us),
        "step": step.step,
        "tokens": spent.input + spent.output if spent is not None else 0,
        "cost": spent.cost_micro if spent is not None else None,
    }


def _step_detail(step: Step) -> str:
    if step.decisions:
        decided = step.decisions[-1]
        answer = decided.choice.label or decided.text
        return f"{answer}, by {decided.by}" if decided.by else answer
    if step.text:
        return step.text
    if step.branches:
        return f"{len(step.branches)} branches"
    if step.ended_at_us is None and step.reason:
        return step.reason
    return count(step.attempts, "attempt") if step.attempts > 1 else step.reason


def _attempts(step: Step, *, is_held: bool) -> Iterator[TimelineRow]:
    """The tries of a step that began more than once, or that waits: it has worked only until then."""
    if len(step.tries) < 2 and not any(one.waits for one in step.tries):
        return
    for one in step.tries:
        is_last = one is step.tries[-1]
        key, state = f"{step.step}/{one.attempt}.{one.number}", _try_state(one, is_last, is_held)
        again = f", try {one.number}" if one.number > 1 else ""
        yield {
            **_row(key, "attempt", f"attempt {one.attempt}{again}", state),
            "parent": step.step,
            "detail": one.reason or (owner_label(one.claim.worker) if one.claim.worker else ""),
            "began_at": instant(one.started_at_us),
            "ended_at": instant(one.ended_at_us),
            "step": step.step,
        }


def _try_state(one: Try, is_last: bool, is_held: bool) -> str:
    if one.waits:
        return "finished"  # it did all that it could; what it waits for has a row of its own
    if one.outcome:
        return timeline_state(one.outcome)
    return "open" if is_last and is_held else "interrupted"


def _call_row(call: CallSeen, *, is_held: bool) -> TimelineRow:
    usage = call.usage
    began_at_us = call.began_at_us
    if began_at_us is None and call.ended_at_us is not None and call.duration_us is not None:
        began_at_us = call.ended_at_us - call.duration_us  # its start was not recorded
    is_gone = call.state == "open" and not is_held
    asks = call.type in (CallKind.MODEL.value, CallKind.PROGRAM.value)
    label = call.call if asks else " ".join(filter(None, (call.name or call.call, call.about)))
    return {
        **_row(f"{call.step}:{call.call}.{call.number}", "call", label, ""),
        "state": "interrupted" if is_gone else timeline_state(call.state),
        "parent": call.step,
        "detail": call.error or call.model,
        "began_at": instant(began_at_us),
        "ended_at": instant(call.ended_at_us),
        "step": call.step,
        "tokens": usage.tokens if usage is not None else 0,
        "cost": call.cost_micro,
    }


def _paths(step: Step) -> Iterable[str]:
    return (plan.path for plan in step.branches)


def _branch_row(path: str, branch: BranchSeen) -> TimelineRow:
    return {
        **_row(path, "branch", path.rpartition("/")[2].rpartition(".")[2], ""),
        "state": timeline_state(branch.status or "running"),
        "parent": branch.step,
        "began_at": instant(branch.started_at_us),
        "ended_at": instant(branch.ended_at_us),
    }


def _planned(ticks: Sequence[Tick]) -> Iterator[TimelineRow]:
    for tick in ticks:
        if tick.state == "planned":
            yield _row(f"planned/{tick.step}", "step", tick.step, "planned")

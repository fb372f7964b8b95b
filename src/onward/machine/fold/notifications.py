"""What a write tells the outside: gates that opened, and a run that stopped or finished.

A write tells of what is still so at its end: a gate that it opens and withdraws, or a stop that it resumes,
is told to nobody. Left to others are stops with a wake time, because the run continues by itself; a run
that a `loop_restart` edge continues as another; and the stops and ends of a managed run, which its manager
sees to. Its gates are told.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from onward.machine.decide.doubt import doubtful_step
from onward.machine.lifecycle import is_recoverable, resume_flags
from onward.model.events.event import Event
from onward.model.events.gates import GateOpened
from onward.model.events.runs import (
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunForked,
    RunInterrupted,
    RunPaused,
)
from onward.model.ids import called, display_id
from onward.model.notification import (
    Facts,
    GateFacts,
    Notification,
    NotificationKind,
    Telling,
    notification_id,
)
from onward.model.run import Gate, Run, RunStatus
from onward.model.values.amounts import raise_argument, raised_amount
from onward.model.values.instant import rfc3339

_STOPS = frozenset({RunPaused, RunInterrupted, RunFailed, RunCompleted, RunCancelled})
TOLD = _STOPS | {GateOpened, RunForked}
_KINDS = {
    RunStatus.PAUSED: NotificationKind.STOPPED,
    RunStatus.INTERRUPTED: NotificationKind.STOPPED,
    RunStatus.FAILED: NotificationKind.STOPPED,
    RunStatus.COMPLETED: NotificationKind.FINISHED,
    RunStatus.CANCELLED: NotificationKind.FINISHED,
}


def notifications(events: Sequence[Event], run: Run, *, after: int, at_us: int) -> Telling | None:
    """What these events tell, if anything: the first is number `after` + 1, and they lead to `run`."""
    told = [(seq, event) for seq, event in enumerate(events, after + 1) if type(event) in TOLD]
    return partial(_notifications, told, run, at_us) if told else None


def tells(events: Sequence[Event]) -> bool:
    """Whether somebody may be told of these events."""
    return not TOLD.isdisjoint(map(type, events))


def _notifications(told: Sequence[tuple[int, Event]], run: Run, at_us: int) -> Iterator[Notification]:
    stopped_at: int | None = None
    for seq, event in told:
        match event:
            case GateOpened():
                gates = [run.gates[event.gate]] if event.gate in run.gates else []
            case RunForked():  # it asks anew what was open where it came off
                gates = list(run.gates.values())
            case _:
                gates, stopped_at = [], seq
        for gate in gates:
            if gate.decided is None:
                yield _notification(run, NotificationKind.GATE, seq, at_us, gate)
    kind = _KINDS.get(run.status)
    if kind is not None and stopped_at is not None and not _is_seen_to(run):
        yield _notification(run, kind, stopped_at, at_us)


def _is_seen_to(run: Run) -> bool:
    """Whether the run, or another, continues without anybody outside."""
    is_continued = run.wake_at_us is not None or run.restarted_as is not None
    return is_continued or run.managed_by is not None


def _notification(
    run: Run, kind: NotificationKind, seq: int, at_us: int, gate: Gate | None = None
) -> Notification:
    id_ = notification_id(run.id, seq, kind.value if gate is None else gate.gate)
    facts = Facts(
        id=id_,
        event=kind,
        at=rfc3339(at_us),
        run=run.id,
        display_id=display_id(run.id),
        pipeline=run.pipeline,
        status=run.status.value,
        reason=run.reason,
        detail=run.detail,
        recoverable=is_recoverable(run.status, run.reason),
        seq=seq,
        gate=None if gate is None else _gate_facts(gate),
        next=_next_command(run, gate),
    )
    body = msgspec.json.encode(facts).decode()
    return Notification(id=id_, run_id=run.id, seq=seq, kind=kind, at_us=at_us, body=body)


def _gate_facts(gate: Gate) -> GateFacts:
    return GateFacts(
        gate=gate.gate,
        node=gate.node,
        type=gate.type,
        text=gate.text,
        about=gate.about,
        choices=gate.choices,
        deadline=None if gate.deadline_us is None else rfc3339(gate.deadline_us),
    )


def _next_command(run: Run, gate: Gate | None) -> str | None:
    """What to type next."""
    if gate is not None:
        is_alone = sum(one.decided is None for one in run.gates.values()) == 1
        which = "" if is_alone else f" --gate {shlex.quote(gate.gate)}"
        return f"onward answer {called(run.id)}{which}"
    if not is_recoverable(run.status, run.reason):
        return None
    return " ".join(("onward", "resume", called(run.id), *_flags(run)))


def _flags(run: Run) -> tuple[str, ...]:
    """What a resume of the run needs: a person's decision, or a higher limit."""
    flags = resume_flags(run.reason, doubtful_step(run))
    return (flags,) if flags else _raise(run)


def _raise(run: Run) -> tuple[str, ...]:
    """The flag that raises the limit that stopped the run, if one did."""
    hits = [opened.limit for opened in run.open_steps.values() if opened.limit is not None]
    if run.reason != "limit" or not hits:
        return ()
    hit = hits[0]
    enough = raised_amount(hit, limit=hit.limit, spent=hit.spent, reserved=hit.reserved)
    return "--raise", raise_argument(hit.scope, hit.measure, enough)

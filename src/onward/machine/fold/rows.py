"""What is stored beside a log, as a function of it: rows of runs and calls, messages, notifications.

A run's row is a function of its fold, so what lists show can be rebuilt and compared. Reservations and
messages begin and end with the calls of a log.

A write tells the outside of gates that opened, and of a run that stopped or finished. It tells of what is
still so at its end: a gate that it opens and withdraws, or a stop that it resumes, is told to nobody. Left
to others are stops with a wake time, because the run continues by itself; a run that a `loop_restart` edge
continues as another; and the stops and ends of a managed run, which its manager sees to. Its gates are
told.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from onward.machine.catalogue import CATALOGUE
from onward.machine.decide.calls import doubtful_step, visits_stop
from onward.machine.reasons import is_at_limit, is_recoverable, resume_flags
from onward.machine.ticks import ticks_text
from onward.model.call import CallFinished, CallLost, CallStarted, CallStatus
from onward.model.events import Event, RunForked
from onward.model.gate import GateOpened
from onward.model.ids import called, display_id
from onward.model.limits import is_possible, raise_argument, raised_amount
from onward.model.row import (
    CallClosed,
    CallOpened,
    CallRow,
    Facts,
    GateFacts,
    MessageState,
    Notification,
    NotificationKind,
    RunRow,
    Telling,
    notification_id,
)
from onward.model.run import Gate, OpenCall, Run, RunStatus
from onward.model.values import rfc3339, tag_column


def run_row(run: Run) -> RunRow:
    """The columns that belong to this state of the run."""
    parent, manager = run.parent, run.managed_by
    return RunRow(
        id=run.id,
        display_id=display_id(run.id),
        pipeline=run.pipeline,
        pipeline_hash=run.pipeline_hash,
        path=run.path,
        status=run.status,
        reason=run.reason,
        detail=run.detail,
        recoverable=is_recoverable(run.status, run.reason),
        next_node=run.branches[""].next_node,
        doubtful=doubtful_step(run),
        steps_finished=run.steps_finished,
        token=run.token,
        owner=run.worker,
        wake_at_us=run.wake_at_us,
        exclusive_key=run.exclusive_key,
        on_owner_loss=run.on_owner_loss,
        priority=run.priority,
        needs=" ".join(run.needs),
        max_running=run.max_running,
        parent=parent.run_id if parent else None,
        parent_seq=parent.seq if parent else None,
        managed_by=manager.run if manager else None,
        managed_step=manager.step if manager else None,
        # A fork of a run that was restarted comes off that run, and takes its place in no chain.
        restart_of=None if parent else run.restart_of,
        restarted_as=run.restarted_as,
        tags=tag_column(run.tags),
        chat=run.chat,
        is_dismissed=run.is_dismissed,
        tokens=run.tokens,
        cost_micro=run.cost_micro,
        ticks=ticks_text(run),
        created_at_us=run.created_at_us,
        updated_at_us=run.updated_at_us,
        ended_at_us=run.ended_at_us,
        head=run.head,
    )


CALLS = frozenset({CallStarted, CallFinished, CallLost})


def call_rows(before: Run | None, events: Sequence[Event]) -> tuple[CallRow, ...]:
    """The calls that reserve or stream, and that these events begin or end. They follow on `before`."""
    rows: list[CallRow] = []
    begun: dict[tuple[str, str], CallOpened] = {}
    for event in events:
        if type(event) not in CALLS:  # nearly always
            continue
        if isinstance(event, CallStarted):
            if event.reserved is not None or event.streamed is not None:
                begun[event.step, event.call] = opened = _opened_row(event)
                rows.append(opened)
        else:
            assert isinstance(event, CallFinished | CallLost)
            known = begun.get((event.step, event.call)) or _open_call(before, event)
            if known is not None:
                rows.append(_closed_row(known, event))
    return tuple(rows) if rows else ()


def _opened_row(event: CallStarted) -> CallOpened:
    return CallOpened(
        step=event.step,
        call=event.call,
        number=event.number,
        model=event.model,
        reserved=event.reserved,
        streamed=event.streamed,
    )


def _open_call(before: Run | None, event: CallFinished | CallLost) -> OpenCall | None:
    """The call that ends, if it reserved something or had a message."""
    opened = before.open_steps.get(event.step) if before is not None else None
    found = opened.calls.open.get(event.call) if opened is not None and opened.calls is not None else None
    return found if found is not None and (found.is_reserved or found.is_streamed) else None


def _closed_row(known: CallOpened | OpenCall, event: CallFinished | CallLost) -> CallClosed:
    finished = event if isinstance(event, CallFinished) else None
    is_known = finished is not None and not finished.is_cost_unknown
    is_counted = finished is not None and is_possible(finished.usage, finished.cost_micro)
    return CallClosed(
        step=event.step,
        call=event.call,
        number=event.number,
        state=message_state(event),
        is_reserved=known.is_reserved,
        is_streamed=known.is_streamed,
        model=(finished.model if finished else "") or known.model,
        usage=finished.usage if finished and is_counted else None,
        cost_micro=finished.cost_micro if finished and is_counted else None,
        is_unknown=not (is_known and is_counted),
        said=(finished.said or None) if finished else None,
    )


def message_state(event: CallFinished | CallLost) -> MessageState:
    """The state of a message after the event that ends its call."""
    if isinstance(event, CallLost):
        return MessageState.INTERRUPTED
    return MessageState.COMPLETE if event.status is CallStatus.OK else MessageState.ERROR


class CallPlace(NamedTuple):
    """A try of a call."""

    step: str
    call: str
    number: int


class MessageSeen(NamedTuple):
    """A message, its state, and the blob of its text if its call names one."""

    message: str
    state: MessageState
    said: str = ""


MessagesSeen = dict[CallPlace, MessageSeen]
"""The message of each call that has one."""


def note_message(said: MessagesSeen, event: Event) -> None:
    """Note the message that an event begins or ends. A run's own log has all of both."""
    if isinstance(event, CallStarted) and event.streamed is not None:
        place = CallPlace(event.step, event.call, event.number)
        said[place] = MessageSeen(event.streamed.message, MessageState.STREAMING)
    elif isinstance(event, CallFinished | CallLost):
        place = CallPlace(event.step, event.call, event.number)
        if place in said:
            text = event.said if isinstance(event, CallFinished) else ""
            said[place] = MessageSeen(said[place].message, message_state(event), text)


TOLD = frozenset(kind for kind, row in CATALOGUE.items() if row.notifies)
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
    stop = visits_stop(run)
    if stop is not None:
        return "--raise", stop.argument
    hits = [opened.limit for opened in run.open_steps.values() if opened.limit is not None]
    if not hits or not is_at_limit(run.reason):
        return ()
    hit = hits[0]
    enough = raised_amount(hit, limit=hit.limit, spent=hit.spent, reserved=hit.reserved)
    return "--raise", raise_argument(hit.scope, hit.measure, enough)

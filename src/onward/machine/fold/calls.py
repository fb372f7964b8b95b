"""Folding calls inside a step: which are open or lost, and from where on answers are remembered.

Also instructions: given by anyone, taken by the next agent step or a request of its agent, returned if that
step is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from onward.machine.fold.changes import Changes, IllegalEvent, without
from onward.model.call import (
    POSITIONAL,
    STARTED,
    AttemptHeld,
    CallFinished,
    CallKind,
    CallLost,
    CallStarted,
    CallStatus,
    HoldsLifted,
    LimitWarned,
    gate_of_call,
)
from onward.model.events import RunningCall, RunResumed, SteeringGiven, StepStarted
from onward.model.limits import bounded_sum, is_possible
from onward.model.run import AttemptState, OpenCall, OpenStep, Run, StepCalls

HELD, INTERRUPTED = AttemptState.HELD, AttemptState.INTERRUPTED
LIMIT, RATE_LIMIT, GATE, PAUSE, WAIT, CHILD = "limit", "rate_limit", "gate", "pause", "wait", "child"
HOLDS = frozenset((LIMIT, RATE_LIMIT, GATE, PAUSE, WAIT, CHILD))
"""Why an attempt is held: `plan.branch` says of each when it continues."""
TOOL, RUN = CallKind.TOOL.value, CallKind.RUN.value
ANSWERS = (CallKind.MODEL.value, CallKind.PROGRAM.value)
"""Calls that a model answers."""
TOLD_MAX = 300


def _step(run: Run, event: CallStarted | CallFinished | CallLost) -> OpenStep:
    found = run.open_steps.get(event.step)
    if found is None:
        raise IllegalEvent(run.status, event, f"step {event.step} is not open, so it has no calls")
    return found


def _calls(run: Run, opened: OpenStep) -> StepCalls:
    return opened.calls or StepCalls(since=run.head, calls_from=run.head)


def _working(run: Run, event: CallStarted | CallFinished) -> OpenStep:
    """The step of a call that its holder makes: the attempt must be under way."""
    opened = _step(run, event)
    is_under_way = opened.state is AttemptState.OPEN and opened.token == run.token
    if not is_under_way or opened.attempt != event.attempt:
        raise IllegalEvent(run.status, event, f"attempt {event.attempt} of step {event.step} is over")
    return opened


def call_started(run: Run, event: CallStarted, at_us: int) -> Changes:
    opened = _working(run, event)
    calls = _calls(run, opened)
    if event.call in calls.open:
        raise IllegalEvent(run.status, event, f"call {event.call} of step {event.step} is already open")
    begun = OpenCall(
        number=event.number,
        type=event.type,
        name=event.name,
        repeatable=event.repeatable,
        began_at_us=at_us,
        model=event.model,
        is_reserved=event.reserved is not None,
        is_streamed=event.streamed is not None,
        about=event.about,
    )
    calls = replace(calls, open={**calls.open, event.call: begun}, thread=event.thread or calls.thread)
    if calls.cut_off and event.number > 1 and event.type in ANSWERS:
        calls = replace(calls, cut_off=calls.cut_off - 1)
    opened = replace(opened, calls=calls)
    if not event.steering:
        return _changed(run, opened, run.open_calls + 1)
    opened = replace(opened, steering=(*opened.steering, *steering_taken(run, event)))
    return _changed(run, opened, run.open_calls + 1) | {"steering": run.steering[event.steering :]}


def call_finished(run: Run, event: CallFinished, at_us: int) -> Changes:
    is_gate = event.type == CallKind.GATE.value
    if event.by and not is_gate:
        return _settled(run, event)
    opened = _working(run, event)
    calls, open_calls = _calls(run, opened), run.open_calls
    begun = calls.open.get(event.call)
    if begun is not None:
        if begun.number != event.number:
            why = f"try {event.number} of call {event.call} is not open; try {begun.number} is"
            raise IllegalEvent(run.status, event, why)
        acts = event.type == TOOL and event.status is CallStatus.OK and not begun.repeatable
        calls = replace(calls, open=without(calls.open, event.call), has_acted=calls.has_acted or acts)
        open_calls -= 1
    if event.status is CallStatus.OK:
        opened = replace(opened, holds=0)
        calls = replace(calls, thread=event.thread) if event.thread else calls
    if event.type == RUN:
        calls = replace(calls, children=_children(calls, event))
    spent = _spent(run, event)
    if spent:
        calls = _with_answer(calls, event)
    changes = _changed(run, replace(opened, calls=calls), open_calls) | spent
    if run.losses and event.status is CallStatus.OK:
        changes["losses"] = 0  # what was answered is never asked again, so the run moves on
    return changes | _asked(run, event, calls.generation) if is_gate else changes


def _children(calls: StepCalls, event: CallFinished) -> dict[str, str]:
    """The runs that calls wait for: one more, or one fewer."""
    if event.call.endswith(STARTED):
        return {**calls.children, event.call.removesuffix(STARTED): event.value["run"]}
    return without(calls.children, event.call) if event.call in calls.children else calls.children


def _spent(run: Run, event: CallFinished) -> Changes:
    """What the run has spent by now; nothing changes with a call that is no request to a model."""
    if event.usage is None and event.cost_micro is None and event.type not in ANSWERS:
        return {}
    changes: Changes = {}
    if is_possible(event.usage, event.cost_micro):
        if event.usage is not None:
            changes["tokens"] = bounded_sum(run.tokens, event.usage.tokens)
        if event.cost_micro is not None:
            changes["cost_micro"] = bounded_sum(run.cost_micro, event.cost_micro)
    if event.status is CallStatus.OK and event.type in ANSWERS:
        changes["answers"] = run.answers + 1
    return changes


def _with_answer(calls: StepCalls, event: CallFinished) -> StepCalls:
    """What is remembered, with one more answer of a model."""
    if event.status is not CallStatus.OK or event.type not in ANSWERS:
        return calls
    is_counted = event.cost_micro is not None and is_possible(event.usage, event.cost_micro)
    cost = bounded_sum(calls.answers_micro, event.cost_micro or 0) if is_counted else calls.answers_micro
    return replace(calls, answers=calls.answers + 1, answers_micro=cost)


def answers_again(run: Run) -> tuple[int, int, int]:
    """Of a plain resume: how many requests to models it sends again, how many remembered answers are among
    them, and what those cost."""
    again = forgotten = cost_micro = 0
    for opened in run.open_steps.values():
        calls = opened.calls
        if calls is None:
            continue
        again += calls.cut_off + sum(one.type in ANSWERS for one in calls.open.values())
        if calls.forgets:
            forgotten += calls.answers
            cost_micro += calls.answers_micro
    return again + forgotten, forgotten, cost_micro


def _asked(run: Run, event: CallFinished, generation: int) -> Changes:
    """The answer of a gate has reached the call that asked: from now on the call has it."""
    gate = run.gates.get(gate_of_call(event.step, event.call, generation))
    if gate is None or gate.decided is None:
        raise IllegalEvent(run.status, event, f"call {event.call} of step {event.step} has no answered gate")
    return {"gates": without(run.gates, gate.gate)}


def _settled(run: Run, event: CallFinished) -> Changes:
    """A person says what came of a call that was lost."""
    opened = _step(run, event)
    calls = opened.calls
    if calls is None or calls.lost.get(event.call) != event.number:
        raise IllegalEvent(run.status, event, f"call {event.call} of step {event.step} is not in doubt")
    acts = calls.has_acted or POSITIONAL.fullmatch(event.call) is not None  # only tools can be in doubt
    lost, told = without(calls.lost, event.call), {**calls.told}
    told.pop(event.call, None)
    settled = replace(calls, lost=lost, told=told, has_acted=acts)
    return _changed(run, replace(opened, calls=settled), run.open_calls)


def with_calls(run: Run, opened: OpenStep) -> Changes:
    """The step has calls from now on: what a flow asks is one."""
    if opened.calls is not None:
        return {}
    return {"open_steps": {**run.open_steps, opened.step: replace(opened, calls=_calls(run, opened))}}


def call_lost(run: Run, event: CallLost, at_us: int) -> Changes:
    opened = _step(run, event)
    calls = opened.calls
    begun = None if calls is None else calls.open.get(event.call)
    if calls is None or begun is None or begun.number != event.number:
        why = f"try {event.number} of call {event.call} of step {event.step} is not open"
        raise IllegalEvent(run.status, event, why)
    calls = replace(calls, open=without(calls.open, event.call))
    if begun.type in ANSWERS:
        calls = replace(calls, cut_off=calls.cut_off + 1)
    if not begun.repeatable:
        said = f"it was done, but {event.why}"[:TOLD_MAX] if event.is_done else ""
        said = " · ".join(filter(None, (told_of(begun) if begun.about else "", said)))
        told = {**calls.told, event.call: said} if said else calls.told
        calls = replace(calls, lost={**calls.lost, event.call: event.number}, told=told)
    return _changed(run, replace(opened, calls=calls), run.open_calls - 1)


def with_running(run: Run, opened: OpenStep, running: Sequence[RunningCall]) -> StepCalls:
    """These calls of a flow are in doubt: their functions outlived the attempt."""
    calls = _calls(run, opened)
    lost = {**{one.call: one.number for one in running}, **calls.lost}
    told = {one.call: " · ".join(filter(None, (one.about, one.where)))[:TOLD_MAX] for one in running}
    return replace(calls, lost=lost, told={**told, **calls.told})


def told_of(begun: OpenCall) -> str:
    """What a call is, in one line."""
    said = f"{begun.name} {begun.about}".strip()
    return said if len(said) <= TOLD_MAX else f"{said[:TOLD_MAX]}…"


def attempt_held(run: Run, event: AttemptHeld, at_us: int) -> Changes:
    opened = run.open_steps.get(event.step)
    if opened is None or opened.state is not AttemptState.OPEN or opened.attempt != event.attempt:
        raise IllegalEvent(run.status, event, f"step {event.step} has no open attempt {event.attempt}")
    if event.reason not in HOLDS:  # nobody knows what it waits for, so it would be tried again at once
        raise IllegalEvent(run.status, event, f"no attempt is held for {event.reason!r}")
    stopped = replace(
        opened,
        state=HELD,
        held=event.reason,
        reason=event.detail,
        retry_at_us=event.until_us,
        limit=event.limit,
        gates=event.gates,
        awaits=event.runs,
        holds=opened.holds + 1 if event.reason == RATE_LIMIT else opened.holds,
        worked_us=opened.worked_us + max(0, at_us - opened.began_at_us),
    )
    return {"open_steps": {**run.open_steps, event.step: stopped}}


def holds_lifted(run: Run, event: HoldsLifted, at_us: int) -> Changes:
    return {"open_steps": {step: lifted(opened) for step, opened in run.open_steps.items()}}


def limit_warned(run: Run, event: LimitWarned, at_us: int) -> Changes:
    return {}


def lifted(opened: OpenStep) -> OpenStep:
    """A step that a limit held tries again; one that waits for something else waits on."""
    if opened.state is not HELD or opened.held != LIMIT:
        return opened
    return replace(opened, state=INTERRUPTED, held="", retry_at_us=None, limit=None)


def looks_again(opened: OpenStep, at_us: int) -> OpenStep:
    """A flow that waits for runs looks at them again as soon as its run is executed."""
    return replace(opened, retry_at_us=at_us) if opened.state is HELD and opened.awaits else opened


def let_go(opened: OpenStep, *, asks_now: bool) -> OpenStep:
    """A step that a provider held continues when a person says so: at once, if the run waited for that."""
    if opened.state is not HELD or opened.held != RATE_LIMIT:
        return opened
    if opened.retry_at_us is not None and not asks_now:
        return opened
    return replace(opened, state=INTERRUPTED, held="", retry_at_us=None)


def begun_again(opened: OpenStep, head: int, attempt: int) -> StepCalls | None:
    """What is remembered when an attempt starts; `head` is the last event before its start."""
    calls = opened.calls
    if calls is None or attempt == opened.attempt or not calls.forgets:
        return calls
    begun = replace(
        calls,
        forgets=False,
        calls_from=head,
        generation=calls.generation + 1,
        thread="",
        answers=0,
        answers_micro=0,
        cut_off=0,
    )
    return replace(begun, thread=calls.thread, failure=opened.reason) if calls.has_acted else begun


def after_resume(opened: OpenStep, event: RunResumed, head: int) -> OpenStep:
    """What a person's decision about a stopped step means for its calls.

    A retry makes lost calls again, and asks everything else again that may be asked again, unless it keeps
    the answers. All other decisions keep them.
    """
    calls = opened.calls
    if calls is None:
        return opened
    if event.action == "retry":
        asked = {**calls.repeats, **dict.fromkeys(event.repeats, head)}
        forgets = not event.keeps_calls
        return replace(opened, calls=replace(calls, lost={}, told={}, forgets=forgets, repeats=asked))
    return replace(opened, calls=replace(calls, forgets=False))


def _changed(run: Run, opened: OpenStep, open_calls: int) -> Changes:
    return {"open_steps": {**run.open_steps, opened.step: opened}, "open_calls": open_calls}


def steering_given(run: Run, event: SteeringGiven, at_us: int) -> Changes:
    return {"steering": (*run.steering, event.text)}


def steering_taken(run: Run, event: StepStarted | CallStarted) -> tuple[str, ...]:
    """What an attempt, or a request of its agent, takes of the instructions that are waiting."""
    if event.steering > len(run.steering):
        why = f"step {event.step} takes {event.steering} instructions, and {len(run.steering)} are waiting"
        raise IllegalEvent(run.status, event, why)
    return run.steering[: event.steering]


def steering_given_back(run: Run) -> tuple[str, ...]:
    """What is waiting when every open step is dropped: also what they had taken."""
    return (*(text for opened in run.open_steps.values() for text in opened.steering), *run.steering)

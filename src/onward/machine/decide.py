"""Requests to a run: each becomes events, nothing (it is so already), or a refusal that says what to do.

Whoever asks holds the run's lock, so of two rival requests the second sees what the first did.
"""

from __future__ import annotations

from dataclasses import dataclass

from onward.errors import InvalidInput, Refused
from onward.machine.answers import decision, has_expired, overdue, told
from onward.machine.closing import cancelling, closing
from onward.machine.definition import Definition
from onward.machine.lifecycle import REASONS, is_recoverable
from onward.machine.route import way_on
from onward.model.answer import Answer
from onward.model.event import (
    CancelRequested,
    Event,
    Outcome,
    PauseRequested,
    PipelineChanged,
    RunClaimed,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunResumed,
    StepFinished,
    StepStatus,
)
from onward.model.ids import branch_of
from onward.model.run import AttemptState, Gate, OpenStep, Run, RunStatus

PAUSE_STRENGTH = {"step": 1, "call": 2, "now": 3}
ACTIONS = ("retry", "skip", "continue", "abort")


@dataclass(frozen=True, slots=True)
class Standing:
    """Who holds the run, as a name for people; whether that process still can; who asks, and when."""

    holder: str | None
    is_alive: bool
    me: str
    now_us: int = 0


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """What a person asks for when they resume."""

    by: str
    from_node: str | None = None
    action: str | None = None
    step: str | None = None
    changed_to: str | None = None
    take_over: bool = False
    restore_workspace: bool = False


def decide_claim(
    run: Run, standing: Standing, *, take_over: bool = False, answered: bool = False
) -> tuple[Event, ...]:
    """Own the run, unless somebody who is alive does. A wait for a provider ends with the claim.

    A waiting run is claimed together with the answer that it waits for (`answered`), or when the deadline of
    a gate has come: then with what that decides.
    """
    if standing.holder is not None and standing.is_alive and not take_over:
        raise occupied(run, standing)
    claim = _claim(run, standing.me)
    match run.status:
        case RunStatus.QUEUED | RunStatus.RUNNING:
            return (claim,)
        case RunStatus.WAITING:
            late = overdue(run, standing.now_us)
            if not late and not answered:
                raise _still_waits(run)
            return (*late, claim)
        case RunStatus.INTERRUPTED if run.wake_at_us is not None:
            return (RunQueued(why=run.reason, wake_at_us=run.wake_at_us), claim)
        case _:
            raise _wrong_state(run, "claimed", f"start it with `onward resume {run.id}` if it can go on")


def occupied(run: Run, standing: Standing) -> Refused:
    """The refusal that names the holder."""
    return Refused(
        "occupied",
        f"run {run.id} is held by {standing.holder}; "
        f"wait for it (--wait), or pause it with `onward pause {run.id}`.",
        details={"holder": standing.holder},
    )


def _claim(run: Run, me: str) -> RunClaimed:
    return RunClaimed(token=run.token + 1, worker=me, lost=run.status is RunStatus.RUNNING)


def decide_pause(run: Run, standing: Standing, *, after: str, by: str) -> tuple[Event, ...]:
    """Stop at the next boundary if somebody is at work, else at once."""
    if after not in PAUSE_STRENGTH:
        raise InvalidInput(f"--after {after!r} is not one of {', '.join(PAUSE_STRENGTH)}.")
    match run.status:
        case RunStatus.PAUSED:
            return ()
        case RunStatus.RUNNING if standing.is_alive:
            asked = PAUSE_STRENGTH.get(run.pending.pause_after or "", 0)
            return () if asked >= PAUSE_STRENGTH[after] else (PauseRequested(after=after, by=by),)
        case RunStatus.RUNNING if run.pending.cancel_by is not None:
            return (_claim(run, standing.me), *cancelling(run, by=run.pending.cancel_by))
        case RunStatus.RUNNING:
            return (_claim(run, standing.me), RunPaused(reason="operator", detail=f"asked by {by}"))
        case RunStatus.QUEUED | RunStatus.WAITING:
            return (RunPaused(reason="operator", detail=f"asked by {by}"),)
        case _:
            raise _wrong_state(run, "paused", "only a queued, running or waiting run can be")


def decide_cancel(run: Run, standing: Standing, *, by: str, reason: str = "user") -> tuple[Event, ...]:
    """Give the run up: through its holder if somebody is at work, else at once."""
    match run.status:
        case RunStatus.CANCELLED:
            return ()
        case RunStatus.COMPLETED:
            raise _wrong_state(run, "cancelled", "it has finished")
        case RunStatus.RUNNING if standing.is_alive:
            return () if run.pending.cancel_by is not None else (CancelRequested(by=by),)
        case RunStatus.RUNNING:
            return (_claim(run, standing.me), *cancelling(run, by=by, reason=reason))
        case _:
            return cancelling(run, by=by, reason=reason)


def decide_release(run: Run, *, owner: str, token: int, now_us: int) -> tuple[Event, ...]:
    """Give back a run that its owner does not drive any more; nothing if somebody else has it by now."""
    if run.status is not RunStatus.RUNNING or (run.worker, run.token) != (owner, token):
        return ()
    if run.pending.cancel_by is not None:
        return cancelling(run, by=run.pending.cancel_by)
    if run.pending.pause_after is not None:
        return (RunPaused(reason="operator", detail=f"asked by {run.pending.pause_by}"),)
    why = "the process that held it stopped driving it"
    if run.on_owner_loss == "requeue":
        return (RunQueued(why=why, wake_at_us=now_us),)
    return (interruption(run, "crash", why),)


def decide_answer(
    run: Run, *, gate_id: str | None, answer: Answer, by: str, now_us: int
) -> tuple[Event, ...]:
    """Decide a gate. The first decision is the decision; saying the same again is no contradiction.

    When the deadline has come, its rule is the first, whether or not somebody was there to apply it.
    """
    gate = _gate(run, gate_id)
    decided = decision(gate, answer, by=by)
    if (gate.decided, gate.answer, gate.rejected) == (decided.choice, decided.text, decided.rejected):
        return ()
    if has_expired(open_gate(run, gate_id), now_us):
        raise Refused(
            "gate_expired",
            f"gate {gate.gate} could be answered until its deadline, which has come; "
            f"`onward resume {run.id}` goes on as the gate says ({told(gate)}).",
            details={"gate": gate.gate, "on_timeout": gate.on_timeout},
        )
    return (decided,)


def open_gate(run: Run, gate_id: str | None) -> Gate:
    """The gate that still wants an answer: the one that is named, or the only one."""
    gate = _gate(run, gate_id)
    if gate.decided is not None:
        raise Refused(
            "gate_decided",
            f"gate {gate.gate} was decided already: {gate.decided.label!r} by {gate.by}.",
            details={"choice": gate.decided.key, "by": gate.by},
        )
    return gate


def _gate(run: Run, gate_id: str | None) -> Gate:
    undecided = [gate for gate in run.gates.values() if gate.decided is None]
    if gate_id is not None:
        found = run.gates.get(gate_id)
        if found is None:
            names = ", ".join(gate.gate for gate in undecided) or "none"
            raise Refused("no_open_gate", f"run {run.id} has no gate {gate_id!r}; open gates: {names}.")
        return found
    if len(undecided) == 1:
        return undecided[0]
    if undecided:
        names = ", ".join(gate.gate for gate in undecided)
        raise InvalidInput(f"run {run.id} has several open gates ({names}); say which with --gate.")
    decided = list(run.gates.values())
    if decided:
        return decided[-1]
    raise Refused(
        "no_open_gate", f"run {run.id} is {run.status} and asks nothing; see `onward show {run.id}`."
    )


def decide_resume(
    definition: Definition, run: Run, standing: Standing, request: ResumeRequest
) -> tuple[Event, ...]:
    """Send a stopped run on and claim it; every check comes before the first event."""
    _check_request(request)
    fallen = check_resumable(run, standing, request)
    if request.action == "abort":
        return (*fallen, *cancelling(run, by=request.by))
    is_due = run.status in (RunStatus.QUEUED, RunStatus.WAITING)
    asks = request.from_node is not None or request.action is not None or request.restore_workspace
    if is_due and not asks:
        return (*fallen, *_changed(run, request), _claim(run, standing.me))
    stopped = _stopped_step(run, request)
    from_node = _from_node(definition, run, request)
    resumed = RunResumed(
        by=request.by,
        from_node=from_node,
        action=request.action,
        step=stopped.step if stopped else None,
        restore_workspace=request.restore_workspace,
    )
    skipped = (_skipped(definition, run, stopped),) if request.action == "skip" and stopped else ()
    left = closing(run, why=f"resumed from {from_node}") if from_node is not None else ()
    claim = RunClaimed(token=run.token + 1, worker=standing.me)
    return (*fallen, *left, resumed, *_changed(run, request), *skipped, claim)


def _check_request(request: ResumeRequest) -> None:
    if request.action is not None and request.action not in ACTIONS:
        raise InvalidInput(f"the action {request.action!r} is not one of {', '.join(ACTIONS)}.")
    if request.action is not None and request.from_node is not None:
        raise InvalidInput(
            f"--from {request.from_node} leaves the stopped step behind, so there is nothing to "
            f"{request.action}; give only one of the two."
        )


def check_resumable(run: Run, standing: Standing, request: ResumeRequest) -> tuple[Event, ...]:
    """Whether the status allows it. A running run with a dead owner counts as interrupted.

    A waiting run can go on when the deadline of a gate has come.
    """
    match run.status:
        case RunStatus.RUNNING:
            if standing.is_alive and not request.take_over:
                raise occupied(run, standing)
            if run.pending.cancel_by is not None and request.action != "abort":
                why = f"{run.pending.cancel_by} asked to cancel it; `onward cancel {run.id}` does it now"
                raise _wrong_state(run, "resumed", why)
            return (RunInterrupted(reason="crash", detail=_how_lost(standing)),)
        case RunStatus.WAITING:
            late = overdue(run, standing.now_us)
            if not late:
                raise _still_waits(run)
            return late
        case RunStatus.QUEUED:
            return ()
        case _ if run.is_final or not is_recoverable(run.status, run.reason):
            raise _wrong_state(run, "resumed", _why_final(run))
        case _:
            return ()


def _still_waits(run: Run) -> Refused:
    gates = ", ".join(gate.gate for gate in run.gates.values() if gate.decided is None)
    return Refused(
        "invalid_state",
        f"run {run.id} waits for an answer at {gates}; give it with `onward answer {run.id}`.",
    )


def _how_lost(standing: Standing) -> str:
    holder = standing.holder or "its owner"
    return f"taken over from {holder}, which was still alive" if standing.is_alive else f"{holder} died"


def _why_final(run: Run) -> str:
    if run.status is RunStatus.COMPLETED:
        return (
            f"it has finished; `onward replay {run.id} --checkpoint SEQ` goes on from a checkpoint as a fork"
        )
    reason = REASONS.get(run.reason)
    return reason.says if reason else "it has ended"


def _wrong_state(run: Run, verb: str, why: str) -> Refused:
    return Refused("invalid_state", f"run {run.id} is {run.status} and cannot be {verb}: {why}.")


def _stopped_step(run: Run, request: ResumeRequest) -> OpenStep | None:
    """The step that the request speaks of; refuses doubt that nobody decided."""
    in_doubt = [opened for opened in run.open_steps.values() if is_in_doubt(opened)]
    if request.from_node is None and in_doubt and request.action not in ACTIONS:
        raise Refused(
            "in_doubt",
            f"step {in_doubt[0].step} began and never finished, and must not be blindly repeated; "
            "say --retry, --skip, --continue or --abort.",
            details={"step": in_doubt[0].step, "attempt": in_doubt[0].attempt},
        )
    if request.action is None:
        return None
    stopped = list(run.open_steps.values())
    if request.step is not None:
        named = [o for o in stopped if request.step in (o.step, o.node)]
    else:
        # What goes on by itself when the run does needs nobody's word, unless there is nothing else.
        named = [o for o in stopped if is_in_doubt(o) or o.state is AttemptState.FAILED] or stopped
    if not named:
        raise Refused("nothing_stopped", _nothing_to(request, run))
    if len(named) > 1:
        steps = [opened.step for opened in named]
        raise Refused(
            "several_stopped",
            f"run {run.id} has several stopped steps ({', '.join(steps)}); "
            f"say with --step which of them to {request.action}.",
            details={"steps": steps},
        )
    return named[0]


def _nothing_to(request: ResumeRequest, run: Run) -> str:
    if request.step is None or not run.open_steps:
        return f"run {run.id} has no unfinished step to {request.action}."
    there = ", ".join(run.open_steps)
    return f"run {run.id} has no unfinished step to {request.action} called {request.step!r}; it has {there}."


def is_in_doubt(opened: OpenStep) -> bool:
    """Begun, not finished, and not to be repeated without a person's word."""
    return not opened.repeatable and opened.state in (AttemptState.OPEN, AttemptState.INTERRUPTED)


def interruption(run: Run, reason: str, detail: str) -> RunInterrupted:
    """Why a run stops whose owner is gone: doubt comes first, since only a person's word ends it."""
    doubtful = next((opened.step for opened in run.open_steps.values() if is_in_doubt(opened)), None)
    if doubtful is None:
        return RunInterrupted(reason=reason, detail=detail)
    why = f"step {doubtful} was cut off and must not be blindly repeated"
    return RunInterrupted(reason="in_doubt", detail=f"{detail}; {why}")


def _from_node(definition: Definition, run: Run, request: ResumeRequest) -> str | None:
    if request.from_node is not None:
        if request.from_node not in definition.graph.nodes:
            raise InvalidInput(
                f"the pipeline has no node {request.from_node!r}; it has {', '.join(definition.graph.nodes)}."
            )
        return request.from_node
    # Going on behind an unmet gate would only meet it again: go back to the gate itself.
    return run.stopped_step if run.reason == "goal_unmet" else None


def _changed(run: Run, request: ResumeRequest) -> tuple[Event, ...]:
    if request.changed_to is None or request.changed_to == run.pipeline_hash:
        return ()
    return (PipelineChanged(pipeline_hash=request.changed_to, before=run.pipeline_hash, by=request.by),)


def _skipped(definition: Definition, run: Run, stopped: OpenStep) -> StepFinished:
    outcome = Outcome(status=StepStatus.SKIPPED, notes="skipped by a person")
    onward = way_on(definition.graph, stopped.node, outcome, run.branches[branch_of(stopped.step)].context)
    return StepFinished(
        step=stopped.step, node=stopped.node, attempt=stopped.attempt, outcome=outcome, next=onward
    )

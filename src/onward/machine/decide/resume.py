"""Resume a stopped run: what a person asks for, checked whole before the first event.

If a step finished and none of its edges can be followed, `past_no_way` says what a person may do about that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from onward.errors import InvalidInput, Refused
from onward.machine.decide.calls import (
    calls_in_doubt,
    is_in_doubt,
    is_use_in_doubt,
    told_in_doubt,
    visits_stop,
)
from onward.machine.decide.requests import (
    HolderView,
    cancelling,
    claim_of,
    closing,
    looks_at_runs,
    occupied,
    still_waits,
    woken,
    wrong_state,
)
from onward.machine.definition import GATE, Definition
from onward.machine.path import likely_path
from onward.machine.plan.action import Stop
from onward.machine.plan.branch import plan_branch, visited_too_often
from onward.machine.plan.route import next_transition
from onward.machine.reasons import CRASH, ContinuesAt, is_recoverable, reason_of
from onward.model import events as ev
from onward.model.call import CallFinished, CallStatus
from onward.model.context import check_value
from onward.model.ids import branch_of, called, node_of, place_of
from onward.model.limits import VISITS, raised_visits
from onward.model.run import AttemptState, OpenStep, Run, RunStatus
from onward.pipeline.flow_source import FLOW, is_flow_kind

ACTIONS = ("retry", "skip", "continue", "abort")


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """What a person asks for when they resume."""

    by: str = "user"
    from_node: str | None = None
    action: str | None = None
    step: str | None = None
    take_over: bool = False
    restore_workspace: bool = False
    workdir: str | None = None
    """The directory that the run's commands work in from now on, if it is another."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """With `continue`: what calls in doubt answered, as the person found out; the others answered nothing."""
    repeats: tuple[str, ...] = ()
    """With `retry`: answered calls that must not be repeated, and are to be made again all the same."""
    fresh: bool = False
    """With `retry`: a step in doubt starts anew; without it, only what is in doubt is done again."""
    accept_changes: bool = False
    """Whether the run continues with its pipeline file as it is now, if that was changed."""
    raises: tuple[tuple[str, str, int], ...] = ()
    """Limits that are raised first: the scope or its kind, the measure and the limit."""
    only_stopped: bool = False
    """Whether to refuse a run that is queued, and so continues by itself."""
    run: bool = True
    """Whether the process that asks executes the run; else it is left in the queue."""
    may_answer: bool = True
    """Whether who asks may answer gates; else `from_node` does not lead past one."""

    @property
    def asks(self) -> bool:
        """Whether the run is not simply to continue where it stopped."""
        return self.from_node is not None or self.action is not None or self.restore_workspace

    @property
    def prepares(self) -> bool:
        """Whether it changes directory, pipeline or limits, also of a run that waits for an answer."""
        return self.workdir is not None or self.accept_changes or bool(self.raises)


def decide_resume(
    definition: Definition,
    run: Run,
    holder_view: HolderView,
    request: ResumeRequest,
    *,
    changed_to: str | None = None,
) -> tuple[ev.Event, ...]:
    """Resume a stopped run and claim it, or leave it queued; every check comes before the first event.

    `changed_to` is the hash of the definition that it continues with.
    """
    _check_request(request)
    fallen = check_resumable(run, holder_view, request)
    if request.action == "abort":
        return (*fallen, *cancelling(run, by=request.by))
    changed = (*_moved(run, request), *pipeline_changed(definition, run, changed_to, by=request.by))
    if _only_prepares(run, request) and not fallen:
        return changed
    is_due = run.status in (RunStatus.QUEUED, RunStatus.WAITING)
    if is_due and not request.asks:
        claim = (claim_of(run, holder_view.asker),) if request.run else ()
        return (*fallen, *changed, *claim)
    visits = raised_visits(request.raises)
    stopped, from_node = _where(definition, run, request, holder_view.now_us)
    if from_node is None:
        _check_visits(definition, replace(run, max_visits=max(run.max_visits, visits)))
    resumed = ev.RunResumed(
        by=request.by,
        from_node=from_node,
        action=request.action,
        step=stopped.step if stopped else run.stopped_step if from_node and request.action else None,
        restore_workspace=request.restore_workspace,
        repeats=request.repeats,
        max_visits=visits,
        keeps_calls=_keeps_calls(definition, stopped, request),
    )
    answered = _answered(definition, stopped, request)
    skips_step = request.action == "skip" and not resumed.keeps_calls
    skipped = (_skipped(definition, run, stopped),) if skips_step and stopped else ()
    left = closing(run, why=f"resumed from {from_node}") if from_node is not None else ()
    # That the run was lost is said by `fallen`.
    claim = (replace(claim_of(run, holder_view.asker), lost=False),) if request.run else ()
    return (*fallen, *left, resumed, *changed, *answered, *skipped, *claim)


def _check_visits(definition: Definition, run: Run) -> None:
    """Refuse to continue only to stop at once because a node was visited too often."""
    stop = visits_stop(run)
    node = None if stop is None else definition.graph.nodes.get(stop.node)
    if stop is None or node is None or not visited_too_often(definition, run, node, stop.visits):
        return
    raise Refused(
        "limit_exceeded",
        f"{run.detail}; allow more visits and resume with `onward resume {called(run.id)} --raise "
        f"{stop.argument}`.",
        details={"scope": stop.scope, "measure": VISITS, "used": stop.visits, "limit": stop.visits},
    )


def pipeline_changed(
    definition: Definition, run: Run, changed_to: str | None, *, by: str
) -> tuple[ev.Event, ...]:
    """The change to the definition that a person accepted, if it is another one."""
    if changed_to is None or changed_to == run.pipeline_hash:
        return ()
    plan = likely_path(definition, run.start_node, run.context)
    return (ev.PipelineChanged(pipeline_hash=changed_to, before=run.pipeline_hash, by=by, plan=plan),)


def _moved(run: Run, request: ResumeRequest) -> tuple[ev.Event, ...]:
    """The change of the run's directory, if another one is asked for."""
    if request.workdir is None or request.workdir == run.workdir:
        return ()
    return (ev.WorkdirChanged(workdir=request.workdir, before=run.workdir, by=request.by),)


def _only_prepares(run: Run, request: ResumeRequest) -> bool:
    """Whether a waiting run is only changed: it keeps waiting for its answer."""
    return run.status is RunStatus.WAITING and request.prepares and not request.asks


def _where(
    definition: Definition, run: Run, request: ResumeRequest, now_us: int
) -> tuple[OpenStep | None, str | None]:
    """The stopped step that the request is about, and the node to continue at if it is not the next one."""
    if request.from_node is None and reason_of(run.reason).continues_at is ContinuesAt.EDGES:
        return None, past_no_way(definition, run, action=request.action, step=request.step, now_us=now_us)
    return _stopped_step(definition, run, request), _from_node(definition, run, request)


def repeat_notice(definition: Definition, run: Run, from_node: str | None) -> str:
    """The notice for `--from` a finished node that must not be repeated; else empty."""
    node = definition.graph.nodes.get(from_node or "")
    if node is None or node.repeatable or node.id not in run.outcomes:
        return ""
    return f"{node.id} has finished before and is not repeatable; it runs again because of --from"


def _keeps_calls(definition: Definition, stopped: OpenStep | None, request: ResumeRequest) -> bool:
    """Whether a retry repeats only what is in doubt, and a skip is only of the uses of tools in doubt.

    A flow always keeps what its steps answered: it repeats what failed.
    """
    if stopped is not None and request.action == "retry" and is_flow_kind(definition.kind(stopped.node)):
        if request.fresh:
            raise InvalidInput(
                "a flow cannot be started over, because its finished steps would be repeated; start a new "
                "run, or fork this one: `onward replay RUN --from STEP`."
            )
        return True
    if stopped is None or not is_in_doubt(stopped):
        return False
    if request.action == "retry":
        return stopped.calls is not None and not request.fresh
    return request.action == "skip" and is_use_in_doubt(stopped)


def _answered(
    definition: Definition, stopped: OpenStep | None, request: ResumeRequest
) -> tuple[CallFinished, ...]:
    """What a person says that the calls in doubt of a step answered; of tools that are skipped, nothing."""
    keeps = _keeps_calls(definition, stopped, request)
    settles = request.action == "continue" or (request.action == "skip" and keeps)
    in_doubt = calls_in_doubt(stopped) if stopped is not None and settles else {}
    unknown = sorted(request.answers.keys() - in_doubt.keys())
    if unknown:
        there = ", ".join(in_doubt) or "none"
        raise InvalidInput(f"call {unknown[0]!r} is not in doubt in that step; calls in doubt: {there}.")
    if stopped is None:
        return ()
    return tuple(
        CallFinished(
            step=stopped.step,
            attempt=stopped.attempt,
            call=call,
            number=number,
            status=CallStatus.OK,
            value=request.answers.get(call),
            by=request.by,
        )
        for call, number in in_doubt.items()
    )


def _check_request(request: ResumeRequest) -> None:
    if request.answers and request.action != "continue":
        raise InvalidInput("--answer is only valid with --continue; give both.")
    for call, answer in request.answers.items():
        check_value(answer, f"the answer of call {call!r}")
    if request.fresh and request.action != "retry":
        raise InvalidInput("--fresh is only valid with --retry; give both.")
    if request.repeats and request.action != "retry":
        raise InvalidInput("--repeat is only valid with --retry; give both.")
    if request.action is not None and request.action not in ACTIONS:
        raise InvalidInput(f"the action {request.action!r} is not one of {', '.join(ACTIONS)}.")
    if request.action is not None and request.from_node is not None:
        raise InvalidInput(
            f"--from {request.from_node} drops the stopped step, so there is nothing to "
            f"{request.action}; give only one of the two."
        )


def check_resumable(run: Run, holder_view: HolderView, request: ResumeRequest) -> tuple[ev.Event, ...]:
    """Whether the status allows it. A running run with a dead holder counts as interrupted.

    A waiting run can continue when its wake time has come, and be prepared or cancelled always.
    """
    match run.status:
        case RunStatus.RUNNING:
            if holder_view.is_alive and not request.take_over:
                raise occupied(run, holder_view)
            if run.pending.cancel_by is not None and request.action != "abort":
                why = f"{run.pending.cancel_by} requested to cancel it; `onward cancel {run.id}` does it now"
                raise wrong_state(run, "resumed", why)
            return (ev.RunInterrupted(reason=CRASH, detail=_how_lost(holder_view)),)
        case RunStatus.WAITING:
            late = woken(run, holder_view.now_us)
            if not late and request.action != "abort":
                late = looks_at_runs(run, holder_view.now_us)
            if not late and request.action != "abort" and not _only_prepares(run, request):
                raise still_waits(run)
            return late
        case RunStatus.QUEUED:
            if request.only_stopped:
                raise wrong_state(run, "resumed", "it has not stopped, and a worker continues it")
            return ()
        case _ if run.is_final or not is_recoverable(run.status, run.reason):
            raise wrong_state(run, "cancelled" if request.action == "abort" else "resumed", _why_final(run))
        case _:
            return ()


def _how_lost(holder_view: HolderView) -> str:
    holder = holder_view.holder or "its holder"
    return f"taken over from {holder}, which was still alive" if holder_view.is_alive else f"{holder} died"


def _why_final(run: Run) -> str:
    why = reason_of(run.reason).says or "it has ended"
    if run.status is RunStatus.COMPLETED:
        why = "it has finished"
    return f"{why}; `onward replay {run.id} --from STEP` repeats it from a step, in a fork"


def _stopped_step(definition: Definition, run: Run, request: ResumeRequest) -> OpenStep | None:
    """The step that the request is about; refuses if a step is in doubt and no action is given."""
    in_doubt = [opened for opened in run.open_steps.values() if is_in_doubt(opened)]
    if request.from_node is None and in_doubt and request.action not in ACTIONS:
        raise Refused(
            "in_doubt",
            f"step {in_doubt[0].step} started and never finished{_why_not(in_doubt[0])}, "
            "and must not be repeated blindly; "
            f"choose --retry, --skip, --continue or --abort{_meaning(definition, in_doubt[0])}.",
            details={
                "step": in_doubt[0].step,
                "attempt": in_doubt[0].attempt,
                **({"calls": calls} if (calls := list(calls_in_doubt(in_doubt[0]))) else {}),
            },
        )
    if request.action is None:
        return None
    stopped = list(run.open_steps.values())
    if request.step is not None:
        named = [o for o in stopped if request.step in (o.step, o.node)]
    else:
        # A step that continues with the run needs no decision, unless there is no other.
        named = [o for o in stopped if is_in_doubt(o) or o.state is AttemptState.FAILED] or stopped
    if not named:
        raise Refused("nothing_stopped", _nothing_to(request, run))
    if len(named) > 1:
        steps = [opened.step for opened in named]
        raise Refused(
            "several_stopped",
            f"run {run.id} has several stopped steps ({', '.join(steps)}); "
            f"name the one to {request.action} with --step.",
            details={"steps": steps},
        )
    return named[0]


def _why_not(opened: OpenStep) -> str:
    """What is known of the end of its attempt, and which of its calls are in doubt."""
    known = [opened.reason] if opened.state is AttemptState.INTERRUPTED and opened.reason else []
    calls = told_in_doubt(opened)
    known += [f"in doubt: {'; '.join(calls)}"] if calls else []
    return f" ({'; '.join(known)})" if known else ""


def _meaning(definition: Definition, opened: OpenStep) -> str:
    """What the choices mean for its calls in doubt."""
    call = next(iter(calls_in_doubt(opened)), None)
    if call is None:
        return ""
    if is_use_in_doubt(opened):
        skips = "tells the model that nothing is known"
    elif definition.kind(opened.node).startswith(FLOW):
        skips = "ends the whole flow here without a result"
    else:
        skips = "continues after the step"
    return (
        f": --retry repeats {call} and keeps all other results, --continue --answer {call}=VALUE gives its "
        f"result, --skip {skips}, --abort ends the run"
    )


def _nothing_to(request: ResumeRequest, run: Run) -> str:
    if request.step is None or not run.open_steps:
        return f"run {run.id} has no unfinished step to {request.action}."
    there = ", ".join(run.open_steps)
    return f"run {run.id} has no unfinished step to {request.action} called {request.step!r}; it has {there}."


def _from_node(definition: Definition, run: Run, request: ResumeRequest) -> str | None:
    if request.from_node is not None:
        if request.from_node not in definition.graph.nodes:
            raise InvalidInput(
                f"the pipeline has no node {request.from_node!r}; it has {', '.join(definition.graph.nodes)}."
            )
        if not request.may_answer and _may_pass_gate(definition, run, request.from_node):
            raise Refused(
                "wrong_role",
                f"continuing at {request.from_node} may bypass a gate; this needs the role approver.",
                details={"role": "approver"},
            )
        at_it = [opened for opened in run.open_steps.values() if opened.node == request.from_node]
        if is_flow_kind(definition.kind(request.from_node)) and any(opened.calls for opened in at_it):
            raise InvalidInput(
                f"--from {request.from_node} would repeat every finished step of the flow; a plain resume "
                f"continues it, and `onward replay {called(run.id)} --from STEP` starts at one of them."
            )
        return request.from_node
    return run.stopped_step if reason_of(run.reason).continues_at is ContinuesAt.STOPPED else None


def _may_pass_gate(definition: Definition, run: Run, node: str) -> bool:
    """Whether a run that continues here leaves a question open, or comes to a node that it never came to by
    itself where some gate might have kept it from that."""
    if any(gate.decided is None and gate.node != node for gate in run.gates.values()):
        return True
    return node not in run.visits and any(definition.kind(name) == GATE for name in definition.graph.nodes)


def _skipped(definition: Definition, run: Run, stopped: OpenStep) -> ev.StepFinished:
    outcome = ev.Outcome(status=ev.StepStatus.SKIPPED, notes="skipped by a person")
    onward = next_transition(
        definition.graph, stopped.node, outcome, run.branches[branch_of(stopped.step)].context
    )
    return ev.StepFinished(
        step=stopped.step, node=stopped.node, attempt=stopped.attempt, outcome=outcome, next=onward
    )


def past_no_way(
    definition: Definition, run: Run, *, action: str | None, step: str | None, now_us: int
) -> str | None:
    """The node to continue at: that of the step for a retry, None if an edge of it can be taken now."""
    stopped = run.stopped_step
    node = node_of(place_of(stopped))
    if step not in (None, stopped, node):
        raise _refused(run, f"run {run.id} stopped after step {stopped}, not at {step!r}", may_retry=True)
    may_retry = node in definition.handler_kinds or definition.kind(node) == GATE
    match action:
        case "retry" if may_retry:
            return node
        case "retry":
            raise _refused(run, f"{node} only routes, so there is nothing to retry", may_retry=False)
        case None:
            _check_way(definition, run, may_retry, now_us)
            return None
        case _:
            said = f"step {stopped} has finished, so there is nothing to {action}"
            raise _refused(run, said, may_retry=may_retry)


def _check_way(definition: Definition, run: Run, may_retry: bool, now_us: int) -> None:
    """Refuse to continue only to stop at once for the same reason."""
    match plan_branch(definition, run, "", now_us):
        case Stop((ev.RunFailed(reason=reason, detail=detail),)) if reason == run.reason:
            raise _refused(run, detail.rstrip("."), may_retry=may_retry)


def _refused(run: Run, what: str, *, may_retry: bool) -> Refused:
    again = "run the step again with --retry, " if may_retry else ""
    return Refused(
        "no_way_on",
        f"{what}; correct the edges and resume with --accept-changes, {again}continue at another node with "
        f"--from NODE, or fork the run with other values: `onward replay {called(run.id)} "
        "--checkpoint SEQ --set KEY=VALUE`.",
        details={"step": run.stopped_step},
    )

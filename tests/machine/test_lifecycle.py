"""Every status with every event: it is in the table, or it is refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from onward.agents.model import HANDLING, FailureKind
from onward.machine.catalogue import CATALOGUE
from onward.machine.fold.changes import IllegalEvent
from onward.machine.lifecycle import FIRST, RUN, apply
from onward.machine.reasons import (
    REASONS,
    ContinuedBy,
    ContinuesAt,
    Reason,
    is_at_limit,
    is_recoverable,
    reason_of,
    resume_flags,
)
from onward.model.call import (
    AttemptHeld,
    CallFinished,
    CallLost,
    CallStarted,
    CallStatus,
    HoldsLifted,
    LimitWarned,
)
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    BranchFinished,
    BranchPlan,
    CancelRequested,
    Event,
    GoalRedirected,
    Outcome,
    ParallelStarted,
    PauseRequested,
    PipelineChanged,
    RunCancelled,
    RunClaimed,
    RunCompleted,
    RunCreated,
    RunDismissed,
    RunFailed,
    RunForked,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunResumed,
    RunWaiting,
    SteeringGiven,
    StepFinished,
    StepRouted,
    StepStarted,
    StepStatus,
    Transition,
    WorkdirChanged,
)
from onward.model.gate import Choice, GateDecided, GateOpened, GateWithdrawn
from onward.model.run import AttemptState, Branch, Gate, OpenCall, OpenStep, Run, RunStatus, StepCalls
from tests.machine.play import created
from tests.shape.tree import ROOT, Module, modules, show

Q, R, W = RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING
P, I, F = RunStatus.PAUSED, RunStatus.INTERRUPTED, RunStatus.FAILED  # noqa: E741
D, C = RunStatus.COMPLETED, RunStatus.CANCELLED
FINAL = (D, C)
YES = Choice(key="Y", label="Yes", to="b")

# The design's table of statuses: from where, by which event, to where.
DESIGNED: list[tuple[tuple[RunStatus, ...], type[Event], RunStatus]] = [
    ((Q,), RunClaimed, R),  # claimed
    ((R,), RunWaiting, W),  # only gates are left
    ((R,), RunQueued, Q),  # a long wait, a drained worker, a dead owner whose run is requeued
    ((R,), RunForked, Q),  # a new run, made from a running one's checkpoint: created means queued
    ((W,), GateDecided, Q),  # a gate decided
    ((Q, R, W), RunPaused, P),  # somebody asked
    ((R, Q), RunInterrupted, I),  # nobody asked
    ((I,), RunQueued, Q),  # the provider's time has come
    ((W,), RunQueued, Q),  # the time of a branch that does not wait for an answer has come
    ((R, W), RunFailed, F),  # no way on
    ((Q, R), RunFailed, F),  # crash loop
    ((R,), RunCompleted, D),
    ((P, I, F), RunResumed, Q),  # resume, retry, skip
    ((Q, R, W, P, I, F), RunCancelled, C),  # any but the final ones
]

SAMPLES: dict[type[Event], Event] = {
    type(event): event
    for event in (
        RunCreated(pipeline="g", pipeline_hash="h", start_node="start"),
        RunForked(parent="p", parent_seq=1, parent_hash="00", by="pat"),
        RunClaimed(token=8, worker="w"),
        PipelineChanged(pipeline_hash="i", before="h", by="pat"),
        WorkdirChanged(workdir="/there", before=None, by="pat"),
        StepStarted(step="b#1", node="b", attempt=1),
        AttemptFailed(step="a#1", attempt=1, status=StepStatus.FAIL, reason="x"),
        AttemptInterrupted(step="a#1", attempt=1, why="x"),
        StepFinished(step="a#1", node="a", attempt=1, outcome=Outcome(status=StepStatus.SUCCESS)),
        CallStarted(step="a#1", attempt=1, call="charge", number=1),
        CallFinished(step="a#1", attempt=1, call="refund", number=1, status=CallStatus.OK),
        CallLost(step="a#1", call="send", number=1),
        AttemptHeld(step="a#1", attempt=1, reason="pause"),
        HoldsLifted(why="raised"),
        LimitWarned(scope="day/2026-01-01", measure="tokens", limit=10, spent=8),
        ParallelStarted(
            step="f#1",
            node="f",
            branches=(BranchPlan(path="f#1.a", to="a", edge=0),),
            join="j",
            policy="wait_all",
            max_parallel=4,
        ),
        BranchFinished(branch="p#1.a", status="success"),
        StepRouted(step="a#1", next=Transition(to="b", reason="weight", edge=1)),
        GoalRedirected(gate="a", next=Transition(to="a", reason="goal_gate")),
        GateOpened(gate="g#2", node="g", text="?", choices=(YES,)),
        GateDecided(gate="g#1", choice=YES, by="pat"),
        GateWithdrawn(gate="g#1"),
        PauseRequested(after="step", by="pat"),
        CancelRequested(by="pat"),
        SteeringGiven(text="be brief", by="pat"),
        RunWaiting(),
        RunQueued(why="later", wake_at_us=9),
        RunPaused(reason="operator"),
        RunInterrupted(reason="crash"),
        RunFailed(reason="step_failed"),
        RunResumed(by="pat"),
        RunDismissed(by="pat"),
        RunCompleted(),
        RunCancelled(reason="user"),
    )
}


def holder_view(status: RunStatus, kind: type[Event]) -> Run:
    """A run in which only the status can be a reason to refuse an event of this kind."""
    run = replace(created(), status=status, token=7)
    if kind in (RunCompleted, RunCancelled):
        return run
    if kind is StepRouted:  # only a line that leads nowhere can be routed again
        return replace(run, branches={"": replace(run.root, next_node=None)})
    opened = OpenStep(step="a#1", node="a", attempt=1, token=7, state=AttemptState.OPEN)
    if kind is CallLost:
        begun = OpenCall(number=1, type="function", name="", repeatable=True, began_at_us=0)
        calls = StepCalls(since=0, calls_from=0, open={"send": begun})
        opened, run = replace(opened, calls=calls), replace(run, open_calls=1)
    gate = Gate(gate="g#1", node="g", text="?", choices=(YES,), opened_at_us=0)
    branches = {**run.branches, "p#1.a": Branch(context=run.context, next_node="j")}
    return replace(run, open_steps={"a#1": opened}, gates={"g#1": gate}, branches=branches)


def applied(run: Run, event: Event) -> Run:
    token = event.token if isinstance(event, RunClaimed) else run.token
    return apply(run, event, run_id="r", at_us=5, token=token)


def test_the_table_is_the_designed_one() -> None:
    designed = {(start, kind, end) for starts, kind, end in DESIGNED for start in starts}
    moving = {
        (start, kind, end) for start, row in RUN.items() for kind, end in row.items() if start is not end
    }
    assert moving == designed
    assert {RunCreated: Q} == FIRST


def test_a_run_that_is_taken_over_stays_running() -> None:
    assert RUN[R][RunClaimed] is R


def test_every_kind_of_event_is_catalogued_and_can_happen_somewhere() -> None:
    possible = set(FIRST).union(*RUN.values())
    assert possible == set(CATALOGUE) == set(SAMPLES)
    assert set(RUN) == set(RunStatus)


@pytest.mark.parametrize("status", RUN)
def test_an_event_leads_where_the_table_says_or_is_refused(status: RunStatus) -> None:
    for kind in CATALOGUE:
        run, event = holder_view(status, kind), SAMPLES[kind]
        expected = RUN[status].get(kind)
        if expected is None:
            with pytest.raises(
                IllegalEvent, match=f"{kind.__name__} is not allowed when the run is {status}"
            ):
                applied(run, event)
        else:
            assert applied(run, event).status is expected, kind


def test_a_log_begins_with_the_runs_creation() -> None:
    assert apply(None, SAMPLES[RunCreated], run_id="r", at_us=5, token=0).status is Q
    for kind in set(CATALOGUE) - {RunCreated}:
        with pytest.raises(IllegalEvent, match=f"{kind.__name__} is not allowed when the run is not created"):
            apply(None, SAMPLES[kind], run_id="r", at_us=5, token=0)


@pytest.mark.parametrize("status", FINAL)
def test_a_final_status_is_never_left(status: RunStatus) -> None:
    """I6: terminal states are not left, by any event."""
    assert RUN[status] == {}
    assert replace(created(), status=status).is_final


def test_only_a_claim_makes_a_run_running() -> None:
    """Design §3: creation, an answer, a time that has come and a resume only queue the run. H6."""
    into = {kind for start, row in RUN.items() for kind, end in row.items() if end is R and start is not R}
    assert into == {RunClaimed}


def test_an_open_gate_can_be_answered_in_every_status_that_can_have_one() -> None:
    """K13: whatever became of the run's owner, an answer to its open question is taken."""
    assert {status for status, row in RUN.items() if GateDecided in row} == set(RunStatus) - set(FINAL)


def test_every_status_but_the_final_ones_can_be_cancelled() -> None:
    assert {status for status, row in RUN.items() if row.get(RunCancelled) is C} == set(RunStatus) - set(
        FINAL
    )


@pytest.mark.parametrize("name", REASONS)
def test_a_reason_belongs_to_a_status_that_its_stop_leads_to(name: str) -> None:
    reason = REASONS[name]
    stops: dict[RunStatus, type[Event]] = {
        P: RunPaused,
        I: RunInterrupted,
        F: RunFailed,
        C: RunCancelled,
        D: RunCompleted,
    }
    assert any(row.get(stops[reason.status]) is reason.status for row in RUN.values())
    assert reason.says


def test_the_reasons_are_the_designed_ones() -> None:
    designed = {
        P: ({"signal", "operator", "manager"}, set()),
        I: ({"restart", "crash", "limit", "in_doubt", "rate_limit", "child"}, set()),
        F: (
            {
                *("step_failed", "no_way_on", "goal_unmet", "crash_loop", "pipeline_error", "flow_changed"),
                *("provider_auth", "provider_credit", "provider_forbidden", "provider_request"),
            },
            {"rejected", "invalid"},
        ),
        C: (set(), {"user", "superseded"}),
        D: (set(), {"dead_end", "restarted_as"}),  # the dialect's own
    }
    for status, (recoverable, lost) in designed.items():
        found = {name: reason for name, reason in REASONS.items() if reason.status is status}
        assert {name for name, reason in found.items() if reason.recoverable} == recoverable
        assert {name for name, reason in found.items() if not reason.recoverable} == lost
    assert {reason.status for reason in REASONS.values()} == set(designed)


COLUMNS = {
    "continued_by manager": {"manager", "restart", "crash", "rate_limit"},
    "continued_by limit": {"limit"},
    "continued_by successor": {"restarted_as", "superseded"},
    "continues_at edges": {"no_way_on"},
    "continues_at stopped": {"goal_unmet"},
    "ends_branch": {"step_failed", "no_way_on"},
    "holder_died": {"crash", "in_doubt"},
    "resume_with": {"in_doubt", "no_way_on"},
}


def test_the_columns_are_the_designed_ones() -> None:
    """Which reasons differ from the rest, and in what."""
    found: dict[str, set[str]] = {}
    for name, reason in REASONS.items():
        for said in differences(reason):
            found.setdefault(said, set()).add(name)
    assert found == COLUMNS


def differences(reason: Reason) -> Iterator[str]:
    if reason.continued_by not in (ContinuedBy.PERSON, ContinuedBy.NOBODY):
        yield f"continued_by {reason.continued_by.value}"
    if reason.continues_at is not ContinuesAt.NEXT:
        yield f"continues_at {reason.continues_at.value}"
    for column in ("ends_branch", "holder_died", "resume_with"):
        if getattr(reason, column):
            yield column


@pytest.mark.parametrize("name", REASONS)
def test_the_columns_of_a_reason_fit_each_other(name: str) -> None:
    reason = REASONS[name]
    if reason.resume_with or reason.continues_at is not ContinuesAt.NEXT:
        assert reason.recoverable
    if reason.ends_branch or reason.continues_at is not ContinuesAt.NEXT:
        assert reason.status is F  # only its event names a step, and only it can become the end of a branch
    if reason.holder_died:
        assert reason.status is I
    if reason.continued_by is ContinuedBy.MANAGER:
        assert reason.status in (P, I)  # a failed child is resumed for a retry of its manager
    if reason.continued_by is ContinuedBy.LIMIT:
        assert reason.status is I
    assert not (reason.status in FINAL and reason.recoverable)


@pytest.mark.parametrize("name", [name for name, reason in REASONS.items() if reason.resume_with])
def test_the_flags_that_a_resume_needs_are_flags_of_resume(name: str) -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    of_resume = page.partition("\n### onward resume\n")[2].partition("\n##")[0]
    for flag in REASONS[name].resume_with.split("|"):
        assert f"`{flag.split()[0]}" in of_resume


def test_a_step_in_doubt_comes_before_the_reason_of_a_stop() -> None:
    assert resume_flags("signal", "a#1") == REASONS["in_doubt"].resume_with
    assert resume_flags("signal", None) == resume_flags("no such reason", None) == ""


def test_a_reason_without_a_row_lets_nobody_continue() -> None:
    assert reason_of("no such reason").continued_by is reason_of("").continued_by is ContinuedBy.NOBODY
    assert not is_at_limit("no such reason")


def test_every_failure_of_a_provider_has_a_reason() -> None:
    """Those for which somebody must change something stop the whole run; after others the step fails."""
    assert HANDLING.keys() == set(FailureKind)
    assert {handling.reason for handling in HANDLING.values()} <= REASONS.keys()
    assert {handling.stop for handling in HANDLING.values()} == {
        *("", "provider_auth", "provider_credit", "provider_forbidden", "provider_request")
    }


def test_the_reason_of_a_cancel_that_names_none_has_a_row() -> None:
    assert REASONS[CancelRequested(by="me").reason].status is C


STOPS = {"RunPaused", "RunInterrupted", "RunFailed", "RunCancelled"}


def bare_reasons(module: Module) -> list[str]:
    """Where a file compares a stop reason with text, or stops a run with a reason that is text."""
    if not any(f'"{name}"' in module.text for name in REASONS):
        return []
    found = (node for node in ast.walk(module.tree) if isinstance(node, ast.expr | ast.pattern))
    return [show(module.path, node.lineno) for node in found if is_bare(node)]


def is_bare(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=kind) | ast.Attribute(attr=kind), keywords=given) if kind in STOPS:
            return any(has_reason(one.value) for one in given if one.arg == "reason")
        case ast.MatchClass(cls=ast.Name(id=kind), kwd_attrs=names, kwd_patterns=wanted) if kind in STOPS:
            return any(has_reason(one) for name, one in zip(names, wanted, strict=True) if name == "reason")
        case ast.Compare(left=left, comparators=others):
            sides = (left, *others)
            return any(map(reads_reason, sides)) and any(map(has_reason, sides))
    return False


def reads_reason(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr="reason") | ast.Name(id="reason"):
            return True
        case ast.Subscript(slice=ast.Constant(value="reason")):
            return True
    return False


def has_reason(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Constant) and one.value in REASONS for one in ast.walk(node))


def test_no_code_knows_a_reason_by_its_text() -> None:
    """What is meant is a column of its row; a stop is written with its constant."""
    assert not [place for module in modules() for place in bare_reasons(module)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('run.reason == "limit"', True),
        ('run["reason"] in ("crash", "in_doubt")', True),
        ('stop_with(run, RunFailed(reason="rejected"))', True),
        ('match run:\n    case RunFailed(reason="step_failed" | "no_way_on"):\n        pass', True),
        ('match run:\n    case AttemptHeld(reason="pause" | "limit"):\n        pass', False),  # of an attempt
        ('refusal.code == "in_doubt"', False),
        ('run.reason == LIMIT or "limit"', False),
    ],
)
def test_a_reason_that_is_text_is_found(code: str, expected: bool) -> None:
    assert bool(bare_reasons(Module("engine.loop", ROOT / "loop.py", code))) is expected


def test_a_recoverable_reason_has_a_way_back() -> None:
    for reason in REASONS.values():
        assert (RUN[reason.status].get(RunResumed) is Q) or not reason.recoverable


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (P, "signal", True),
        (F, "step_failed", True),
        (F, "rejected", False),
        (P, "step_failed", False),  # a reason of another status says nothing
        (R, "", False),
        (D, "", False),
        (I, "no such reason", False),
    ],
)
def test_recoverable_is_what_the_tables_say(status: RunStatus, reason: str, expected: bool) -> None:
    assert is_recoverable(status, reason) is expected

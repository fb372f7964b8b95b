"""The projection of a log: steps, attempts, gates, branches and stops, the same however it is read."""

from __future__ import annotations

from collections.abc import Iterable

from onward.machine.lifecycle import apply
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    BranchFinished,
    BranchPlan,
    Event,
    Outcome,
    ParallelStarted,
    RunClaimed,
    RunCreated,
    RunForked,
    RunInterrupted,
    RunResumed,
    StepFinished,
    StepStarted,
    StepStatus,
)
from onward.model.gate import Choice, GateDecided, GateOpened, GateWithdrawn
from onward.model.result import Result
from onward.read.log import Claim, Projection, Step
from tests.machine.play import Play

S = 1_000_000
YES = Choice(key="Y", label="Yes", to="exit")
CREATED = RunCreated(pipeline="p", pipeline_hash="h", start_node="start")


def read(*stamped: tuple[int, Event]) -> Projection:
    """The projection of events, each with the second it happened in."""
    log = Projection()
    for at_s, event in stamped:
        log.apply(event, at_us=at_s * S)
    return log


def began(attempt: int = 1, step: str = "work#1") -> StepStarted:
    return StepStarted(step=step, node=step.partition("#")[0], attempt=attempt)


def ended(status: StepStatus = StepStatus.SUCCESS, step: str = "work#1") -> StepFinished:
    return StepFinished(step=step, node=step.partition("#")[0], attempt=1, outcome=Outcome(status=status))


def failed(attempt: int, retry_at_us: int | None) -> AttemptFailed:
    return AttemptFailed(
        step="work#1", attempt=attempt, status=StepStatus.RETRY, reason="busy", retry_at_us=retry_at_us
    )


def made(step: Step) -> list[tuple[int, int, float | None, str]]:
    return [(one.attempt, one.number, one.duration_s, one.outcome) for one in step.tries]


def test_a_crash_begins_another_try_of_the_same_attempt() -> None:
    """When a try ended whose process died is not known, so it adds nothing to what the step took."""
    log = read(
        *((0, CREATED), (0, RunClaimed(token=1, worker="first")), (1, began())),
        *((16, RunClaimed(token=2, worker="second", lost=True)), (17, began()), (22, ended())),
    )
    step = log.steps["work#1"]
    assert made(step) == [(1, 1, None, ""), (1, 2, 5.0, "success")]
    assert [one.claim.worker for one in step.tries] == ["first", "second"]
    assert (step.attempts, step.duration_s, step.elapsed_s, step.state) == (1, 5.0, 21.0, "success")
    assert log.claim == Claim(token=2, worker="second", is_take_over=True, at_us=16 * S)


def test_a_retry_takes_the_next_number_and_says_why() -> None:
    log = read((0, began()), (2, failed(1, 3 * S)))
    assert (log.steps["work#1"].state, log.steps["work#1"].reason) == ("retrying", "busy")
    log.apply(began(2), at_us=3 * S)
    log.apply(failed(2, None), at_us=4 * S)
    step = log.steps["work#1"]
    assert made(step) == [(1, 1, 2.0, "retry"), (2, 1, 1.0, "retry")]
    assert (step.state, step.ended_at_us) == ("failed", None)


def test_an_attempt_that_has_ended_is_not_ended_again_by_a_skip() -> None:
    stopped = AttemptInterrupted(step="work#1", attempt=1, why="Ctrl-C")
    step = read((0, began()), (1, stopped), (9, ended(StepStatus.SKIPPED))).steps["work#1"]
    assert made(step) == [(1, 1, 1.0, "interrupted")]
    assert (step.state, step.duration_s, step.elapsed_s) == ("skipped", 1.0, 9.0)


def test_a_fan_out_takes_from_its_first_branch_to_its_end() -> None:
    plans = tuple(BranchPlan(path=f"fan#1.{to}", to=to, edge=0) for to in ("a", "b"))
    fan = ParallelStarted(step="fan#1", node="fan", branches=plans, join="j", policy="", max_parallel=2)
    log = read((1, fan), (3, BranchFinished(branch="fan#1.a", status="success")))
    assert [(one.index, one.status) for one in log.branches.values()] == [(0, "success"), (1, "")]
    log.apply(ended(step="fan#1"), at_us=6 * S)
    assert (log.steps["fan#1"].duration_s, log.steps["fan#1"].attempts) == (5.0, 1)


def test_a_gate_is_open_until_it_is_decided_or_withdrawn() -> None:
    asked = GateOpened(gate="ask#1", node="ask", text="Go on?", choices=(YES,))
    log = read((0, asked))
    assert (log.steps["ask#1"].state, log.steps["ask#1"].text) == ("waiting", "Go on?")
    decided = GateDecided(gate="ask#1", choice=YES, by="me")
    log.apply(decided, at_us=S)
    assert (log.steps["ask#1"].state, log.steps["ask#1"].decisions) == ("decided", (decided,))
    assert read((0, asked), (1, GateWithdrawn(gate="ask#1"))).steps["ask#1"].state == "withdrawn"


def test_what_a_resume_from_elsewhere_or_a_fork_leaves_is_left() -> None:
    for event in (
        RunResumed(by="me", from_node="start"),
        RunForked(parent="p", parent_seq=2, parent_hash="h", by="me"),
    ):
        log = read((0, began()), (1, event))
        assert log.steps["work#1"].state == "left"
    assert read((0, began()), (1, RunResumed(by="me"))).steps["work#1"].state == "running"


def test_a_stop_says_why_until_the_run_is_claimed_again() -> None:
    log = read((0, CREATED), (1, RunInterrupted(reason="crash", detail="gone")))
    assert log.stop is not None
    assert (log.stop.kind, log.stop.reason, log.checkpoint) == ("RunInterrupted", "crash", 1)
    log.apply(RunClaimed(token=1, worker="me"), at_us=2)
    assert log.stop is None


def stamped(play: Play) -> Iterable[tuple[Event, int]]:
    return ((event, at_us) for event, at_us, _ in play.log)


def played() -> Play:
    play = Play('a [prompt="do", max_retries=1]; b [prompt="do"]; start -> a -> b -> exit')
    play.result(Result.retry("busy"), jitter=0.5)
    play.now_us += 60 * S
    play.claim()
    play.now_us += 60 * S
    play.claim("third")
    play.succeed()
    play.succeed()
    return play


def test_a_projection_in_two_parts_is_the_projection_at_once() -> None:
    """A copy that took in events which were never committed does not change the one it came from."""
    log = [*stamped(played())]
    whole = Projection()
    for event, at_us in log:
        ahead = whole.copy()
        ahead.apply(began(step="never#1"), at_us=at_us)
        whole.apply(event, at_us=at_us)
    again = Projection()
    for event, at_us in log:
        again.apply(event, at_us=at_us)
    assert again == whole
    assert again.head == len(log)


def test_the_fold_and_the_projection_count_the_same_attempts() -> None:
    """A progress line takes them from the fold, and a page from the log."""
    log, run, seen = Projection(), None, set[int]()
    for event, at_us, token in played().log:
        run = apply(run, event, run_id="r", at_us=at_us, token=token)
        log.apply(event, at_us=at_us)
        for opened in run.open_steps.values():
            step = log.steps[opened.step]
            last = step.tries[-1]
            assert (opened.starts, opened.began_at_us) == (len(step.tries), last.started_at_us)
            assert opened.worked_us == round((step.duration_s or 0) * 1_000_000)
            assert (opened.attempt, opened.tries, opened.token) == (
                last.attempt,
                last.number,
                last.claim.token,
            )
            seen.add(opened.starts)
    assert seen == {1, 2, 3}


def test_finished_steps_can_be_forgotten_so_that_memory_is_bounded() -> None:
    log = Projection()
    for number in range(1, 1_001):
        log.apply(began(step=f"work#{number}"), at_us=number)
        log.apply(ended(step=f"work#{number}"), at_us=number)
        log.forget(f"work#{number}")
    assert (log.steps, log.begun, log.head) == ({}, 1_000, 2_000)


def test_completed_steps_are_in_the_order_of_their_outcomes() -> None:
    log = read(
        *((0, began(step="a#1")), (0, began(step="b#1"))),
        *((1, ended(step="b#1")), (2, ended(step="a#1")), (3, began(step="c#1"))),
    )
    assert log.completed() == ["b#1", "a#1"]
    assert [step.index for step in log.steps.values()] == [0, 1, 2]

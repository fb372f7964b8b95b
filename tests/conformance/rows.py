"""The row is a function of the log: after every event it is the projection of the fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.engine.log import Folded
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.rows import run_row
from onward.machine.fold.steps import note_gates
from onward.machine.lifecycle import apply
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    CancelRequested,
    Event,
    Outcome,
    PauseRequested,
    PipelineChanged,
    RunCancelled,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunResumed,
    RunWaiting,
    StepFinished,
    StepStarted,
    StepStatus,
    Transition,
    WorkdirChanged,
)
from onward.model.gate import Choice, GateDecided, GateOpened, GateWithdrawn
from onward.model.row import GateRow
from onward.model.run import FOLD_VERSION, Run, RunStatus
from onward.store.codec import unseal
from onward.store.port.runs import RunQuery
from onward.store.port.store import Store
from tests.conformance.drafts import ALL, created, log_of

LATER_US = 1_800_000_000_000_000
YES = Choice(key="y", label="Yes", to="after")
SUCCESS = Outcome(status=StepStatus.SUCCESS)


def work(run: Run) -> Iterator[Event]:
    """What a holder might write next, legal or not."""
    visit = run.visits.get("work", 0) + 1
    yield StepStarted(step=f"work#{visit}", node="work", attempt=1)
    yield StepStarted(step=f"work#{visit}", node="work", attempt=1, repeatable=False)
    yield GateOpened(gate=f"ask#{visit}", node="work", text="Go on?", choices=(YES,))
    for open_ in run.open_steps.values():
        onward = Transition(to=f"node-{visit}", reason="only edge", edge=visit)
        yield StepFinished(
            step=open_.step,
            node="work",
            attempt=open_.attempt,
            outcome=SUCCESS,
            next=onward,
            context={"n": visit},
        )
        yield AttemptFailed(
            step=open_.step,
            attempt=open_.attempt,
            status=StepStatus.RETRY,
            reason="no answer",
            retry_at_us=LATER_US,
        )
        yield AttemptInterrupted(step=open_.step, attempt=open_.attempt, why="stopped")
    yield RunWaiting()
    yield RunWaiting(wake_at_us=LATER_US)
    yield RunQueued(why="drained", wake_at_us=LATER_US)
    yield RunPaused(reason="signal", detail="Ctrl-C")
    yield RunInterrupted(reason="rate_limit", wake_at_us=LATER_US)
    yield RunFailed(reason="step_failed", detail="no way on", step="work#1")
    yield RunFailed(reason="no_way_on", detail="no edge can be taken", step="work#1")
    yield RunCompleted()
    yield RunCompleted(ended_at="work")


def requests(run: Run, me: str) -> Iterator[Event]:
    """What a control request might write next, legal or not."""
    yield RunClaimed(token=run.token + 1, worker=me, lost=run.worker is not None)
    yield PipelineChanged(pipeline_hash=f"{run.head:064d}", before=run.pipeline_hash, by="tests")
    yield WorkdirChanged(workdir=f"/place {run.head}", before=run.workdir, by="tests")
    for gate in run.gates:
        yield GateDecided(gate=gate, choice=YES, by="tests")
        yield GateWithdrawn(gate=gate)
    yield PauseRequested(after="step", by="tests")
    yield CancelRequested(by="tests")
    yield RunPaused(reason="operator", detail="asked by tests")
    yield RunResumed(by="tests")
    yield RunCancelled(reason="user", by="tests")


def is_legal(run: Run, event: Event) -> bool:
    """Whether the event may come next; a claim must change the run."""
    try:
        apply(run, event, run_id=run.id, at_us=LATER_US, token=run.token)
    except IllegalEvent:
        return False
    return True


async def went_on(journal: Journal, folded: Folded, owner: str, die: int) -> Folded:
    """The run after one more event, chosen by `die` among all that are legal."""
    run, clock = folded.run, SystemClock()
    is_held = run.status is RunStatus.RUNNING
    by_holder = [event for event in work(run) if is_held and is_legal(run, event)]
    asked = [event for event in requests(run, owner) if is_legal(run, event)]
    if not by_holder + asked:
        return folded
    event = (by_holder + asked)[die % len(by_holder + asked)]
    if event not in by_holder:
        return await journal.control(run.id, lambda *_: (event,), append_id=f"event-{folded.position.seq}")
    at_us = clock.now_us()
    after = apply(run, event, run_id=run.id, at_us=at_us, token=run.token)
    return await journal.record(folded, (event,), after, at_us, folded.lease)


async def gates_of(store: Store, run_id: str) -> dict[str, GateRow]:
    """The gates of a run as its log has them, event by event."""
    rows: dict[str, GateRow] = {}
    run: Run | None = None
    for record in await log_of(store, run_id):
        before, event = run, unseal(record)
        run = apply(run, event, run_id=run_id, at_us=record.at_us, token=record.token)
        note_gates(rows, before, event, run, record.at_us)
    return rows


async def check(store: Store, folded: Folded) -> None:
    """The row, wherever it is shown, and the rows of the gates match the whole log."""
    run_id = folded.run.id
    loaded = await store.log.load(run_id, fold_version=FOLD_VERSION)
    again = await Journal(store.log, SystemClock()).load_at(run_id, folded.position.seq)
    assert loaded is not None
    assert (again.run, again.position) == (folded.run, loaded.position)
    assert loaded.row == run_row(again.run)
    assert [listed.row for listed in await store.runs.find(run_id)] == [loaded.row]
    assert {row.gate: row for row in await store.gates.of(run_id)} == await gates_of(store, run_id)
    assert loaded.row in [listed.row for listed in await store.runs.list(RunQuery(limit=ALL))]


@given(dice=st.lists(st.integers(0, 1_000), min_size=4, max_size=16))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_the_row_is_the_projection_of_the_log_after_every_event(
    store: Store, dice: Sequence[int]
) -> None:
    journal = Journal(store.log, SystemClock())
    run = await created(store, start_node="work", path="story.dot", needs=("tool",))
    folded = await journal.load(run.id)
    await check(store, folded)
    for die in dice:
        folded = await went_on(journal, folded, store.leases.owner, die)
        await check(store, folded)

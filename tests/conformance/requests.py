"""Requests: decided under the run's lock, from the log at that moment, once per append id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onward.errors import Refused, StaleHistory
from onward.model.events import CancelRequested, PauseRequested, RunPaused
from onward.model.run import FOLD_VERSION, RunStatus
from onward.store.codec import unseal
from onward.store.port.leases import Holder
from onward.store.port.log import Controlled, Held, StoredEvent, Write
from onward.store.port.store import Store
from tests.conformance.drafts import Draft, created, everything_of, held, log_of, requested, step, stepped

PAUSE = PauseRequested(after="step", by="tests")


class Asked:
    """A `decide` that remembers what it was shown."""

    def __init__(self, answer: Write | None) -> None:
        self.answer, self.calls = answer, list[tuple[Held, Sequence[StoredEvent]]]()

    def __call__(self, held: Held, tail: Sequence[StoredEvent]) -> Write | None:
        self.calls.append((held, tail))
        return self.answer


async def test_a_request_is_shown_the_run_as_it_is_and_the_log_since_the_asker_looked(
    store: Store, other: Store
) -> None:
    seen = await held(store)
    run = await stepped(store, seen, times=2)
    write, after = run.then(PAUSE)
    ask = Asked(write)
    answer = await other.log.control(run.id, since=seen.position.seq, append_id="pause", decide=ask)
    ((shown, tail),) = ask.calls
    assert shown == Held(
        run.position, RunStatus.RUNNING, Holder(store.leases.owner, 1, True), other.leases.owner
    )
    assert list(tail) == (await log_of(store, run.id))[seen.position.seq : run.position.seq]
    assert answer == Controlled(after.position)
    assert (await log_of(store, run.id))[-1] == write.records[0]


async def test_a_run_that_nobody_holds_is_shown_without_a_holder(store: Store) -> None:
    run = await created(store)
    ask = Asked(None)
    await store.log.control(run.id, since=0, append_id="look", decide=ask)
    ((shown, tail),) = ask.calls
    assert shown == Held(run.position, RunStatus.QUEUED, None, store.leases.owner)
    assert list(tail) == await log_of(store, run.id)


@pytest.mark.parametrize("refusal", [Refused("invalid_state", "not now."), RuntimeError("a defect")])
async def test_a_refusal_is_handed_on_and_writes_nothing(store: Store, refusal: Exception) -> None:
    run = await held(store)
    before = await everything_of(store, run.id)

    def refuse(held: Held, tail: Sequence[StoredEvent]) -> Write | None:
        raise refusal

    with pytest.raises(type(refusal)) as raised:
        await store.log.control(run.id, since=0, append_id="pause", decide=refuse)
    assert raised.value is refusal
    assert await everything_of(store, run.id) == before
    await stepped(store, await requested(store, run, PAUSE, append_id="pause"))


async def test_a_request_with_nothing_to_do_writes_nothing_and_keeps_its_id(store: Store) -> None:
    run = await held(store)
    before = await everything_of(store, run.id)
    answer = await store.log.control(run.id, since=0, append_id="pause", decide=Asked(None))
    assert answer == Controlled(run.position)
    assert await everything_of(store, run.id) == before
    after = await requested(store, run, PAUSE, append_id="pause")
    assert (await log_of(store, run.id))[-1].hash == after.position.hash


async def test_the_same_request_again_is_answered_without_being_decided_again(
    store: Store, other: Store
) -> None:
    """H1."""
    asked = await requested(store, await held(store), PAUSE, append_id="pause")
    run = await stepped(store, asked)
    before = await everything_of(store, run.id)
    ask = Asked(run.then(CancelRequested(by="tests"))[0])
    for process in (store, other):
        answer = await process.log.control(run.id, since=0, append_id="pause", decide=ask)
        assert answer == Controlled(run.position, is_repeat=True, answered=asked.position.seq)
    assert ask.calls == []
    assert await everything_of(store, run.id) == before


async def test_an_append_id_belongs_to_one_run(store: Store) -> None:
    one, two = await held(store), await held(store)
    await requested(store, one, PAUSE, append_id="pause")
    after = await requested(store, two, PAUSE, append_id="pause")
    assert (await log_of(store, two.id))[-1].hash == after.position.hash


async def test_the_creation_counts_as_a_request_of_its_id(store: Store) -> None:
    run = await created(store)
    ask = Asked(None)
    answer = await store.log.control(run.id, since=0, append_id="creation", decide=ask)
    assert (answer.is_repeat, answer.answered, ask.calls) == (True, run.position.seq, [])


async def test_of_two_rival_requests_the_second_sees_the_first(store: Store, other: Store) -> None:
    """H3."""
    run = await created(store)
    first, second = Decision(run, "first"), Decision(run, "second")
    await asyncio.gather(
        *(
            process.log.control(run.id, since=run.position.seq, append_id=decision.by, decide=decision)
            for process, decision in ((store, first), (other, second))
        )
    )
    saw = sorted((first, second), key=lambda decision: len(decision.saw))
    assert [decision.saw for decision in saw] == [[], [saw[0].by]]
    assert len(await log_of(store, run.id)) == run.position.seq + 1


class Decision:
    """Pauses a queued run, unless it is already paused."""

    def __init__(self, run: Draft, by: str) -> None:
        self.run, self.by, self.saw = run, by, list[str]()

    def __call__(self, held: Held, tail: Sequence[StoredEvent]) -> Write | None:
        events = [unseal(record) for record in tail]
        self.saw = [event.detail for event in events if isinstance(event, RunPaused)]
        if self.saw:
            return None
        return self.run.then(RunPaused(reason="operator", detail=self.by))[0]


async def test_requests_of_many_processes_leave_one_log_without_a_gap(store: Store, other: Store) -> None:
    run = await held(store)

    async def ask(number: int) -> None:
        def decide(held: Held, tail: Sequence[StoredEvent]) -> Write:
            current = run.after(tail)
            assert current.position == held.position
            return current.then(PauseRequested(after="step", by=str(number)))[0]

        process = (store, other)[number % 2]
        await process.log.control(run.id, since=run.position.seq, append_id=f"ask-{number}", decide=decide)

    await asyncio.gather(*(ask(number) for number in range(20)))
    log = await log_of(store, run.id)
    assert [record.seq for record in log] == list(range(1, run.position.seq + 21))
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.position == (log[-1].seq, log[-1].hash)


async def test_a_request_made_for_an_older_log_is_refused(store: Store) -> None:
    """H13."""
    run = await held(store)
    old, _ = run.then(PAUSE)
    await stepped(store, run)
    before = await everything_of(store, run.id)
    with pytest.raises(StaleHistory):
        await store.log.control(run.id, since=0, append_id="pause", decide=Asked(old))
    assert await everything_of(store, run.id) == before


async def test_a_holder_that_was_overtaken_by_a_request_is_told_to_look(store: Store, other: Store) -> None:
    """H2."""
    run = await held(store)
    write, _ = run.then(*step(run))
    asked = await requested(other, run, PAUSE)
    with pytest.raises(StaleHistory):
        await store.log.append(write, run.lease)
    await stepped(store, asked)

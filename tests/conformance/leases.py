"""Leases: one holder by its token, fenced as soon as another process claims."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onward.errors import LeaseLost, Refused
from onward.model.events import PauseRequested, RunClaimed, RunPaused, RunQueued, RunResumed
from onward.model.run import FOLD_VERSION
from onward.store.codec import unseal
from onward.store.port.leases import Holder
from onward.store.port.log import Held, StoredEvent, Write
from onward.store.port.store import Store
from tests.conformance.drafts import (
    Draft,
    claimed,
    created,
    creation,
    everything_of,
    held,
    log_of,
    requested,
    step,
    stepped,
)
from tests.conformance.processes import Connect


async def holder_of(store: Store, run: Draft) -> Holder | None:
    """Who holds the run, as `store` sees it."""
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    return loaded.holder


async def test_a_claimed_run_has_a_living_holder_for_everybody(store: Store, other: Store) -> None:
    run = await claimed(store, await created(store))
    assert await holder_of(store, run) == Holder(store.leases.owner, 1, True)
    assert await holder_of(other, run) == Holder(store.leases.owner, 1, True)
    (listed,) = await other.runs.find(run.id)
    assert listed.holder == Holder(store.leases.owner, 1, True)


async def test_two_processes_are_never_the_same_owner(store: Store, other: Store) -> None:
    assert store.leases.owner != other.leases.owner
    assert store.leases.owner == store.leases.owner


async def test_a_lease_can_be_renewed_before_it_runs_out(store: Store) -> None:
    assert store.leases.heartbeat_s > 0
    assert store.leases.lease_s is None or store.leases.heartbeat_s <= store.leases.lease_s / 2


async def test_a_taken_over_run_is_lost_to_its_old_holder(store: Store, other: Store) -> None:
    """H19."""
    old = await stepped(store, await held(store))
    new = await claimed(other, old)
    assert new.lease.token == old.lease.token + 1
    before = await everything_of(other, old.id)
    for with_row in (True, False):
        write, _ = old.then(*step(old), with_row=with_row)
        with pytest.raises(LeaseLost):
            await store.log.append(write, old.lease)
    write, _ = new.then(*step(new))
    with pytest.raises(LeaseLost):
        await store.log.append(write, old.lease)
    assert await store.leases.renew([old.lease]) == {}
    assert await everything_of(other, old.id) == before
    await stepped(other, new)


async def test_tokens_only_rise(store: Store, other: Store) -> None:
    run = await created(store)
    for process in (store, other, other, store):
        run = await stepped(process, await claimed(process, run))
    tokens = [record.token for record in await log_of(store, run.id)]
    assert tokens == sorted(tokens)
    assert tokens[-1] == 4
    assert await holder_of(other, run) == Holder(store.leases.owner, 4, True)


async def test_a_holder_that_claims_again_fences_itself(store: Store) -> None:
    old = await held(store)
    new = await claimed(store, old)
    write, _ = new.then(*step(new))
    with pytest.raises(LeaseLost):
        await store.log.append(write, old.lease)
    await store.log.append(write, new.lease)


async def test_of_many_claims_at_once_exactly_one_wins(store: Store, other: Store) -> None:
    """S2-15: the others are refused and have written nothing."""
    run = await created(store)

    async def claim(number: int) -> None:
        process = (store, other)[number % 2]

        def decide(held: Held, tail: Sequence[StoredEvent]) -> Write:
            if held.holder is not None:
                raise Refused("occupied", "somebody was faster.", details={"holder": held.holder.owner})
            return run.then(RunClaimed(token=1, worker=held.asker))[0]

        await process.log.control(run.id, since=run.position.seq, append_id=f"claim-{number}", decide=decide)

    answers = await asyncio.gather(*(claim(number) for number in range(20)), return_exceptions=True)
    assert sum(answer is None for answer in answers) == 1
    winner = (store, other)[answers.index(None) % 2]
    refusals = [answer for answer in answers if isinstance(answer, Refused)]
    assert [refusal.details["holder"] for refusal in refusals] == [winner.leases.owner] * 19
    claims = [unseal(record) for record in (await log_of(store, run.id))[1:]]
    assert claims == [RunClaimed(token=1, worker=winner.leases.owner)]


async def test_a_renewal_answers_the_head_of_each_run_still_held(store: Store, other: Store) -> None:
    """H4."""
    one, two = await held(store), await stepped(store, await held(store))
    assert await store.leases.renew([one.lease, two.lease]) == {
        one.id: one.position.seq,
        two.id: two.position.seq,
    }
    asked = await requested(other, one, PauseRequested(after="step", by="tests"))
    assert await store.leases.renew([one.lease]) == {one.id: asked.position.seq}


async def test_a_renewal_says_nothing_of_runs_that_are_not_held_by_that_lease(
    store: Store, other: Store
) -> None:
    lost, stopped, kept = await held(store), await held(store), await held(store)
    await claimed(other, lost)
    write, _ = stopped.then(RunPaused(reason="signal"))
    await store.log.append(write, stopped.lease)
    leases = [lost.lease, stopped.lease, kept.lease, kept.lease._replace(run_id="nowhere")]
    assert await store.leases.renew(leases) == {kept.id: kept.position.seq}
    assert await store.leases.renew([kept.lease._replace(token=2)]) == {}
    assert await store.leases.renew([kept.lease._replace(owner=other.leases.owner)]) == {}
    assert await store.leases.renew([]) == {}


async def test_the_runs_of_a_process_that_is_gone_can_be_told_and_taken_over(
    connect: Connect, other: Store
) -> None:
    """H8."""
    gone = await connect()
    run = await stepped(gone, await held(gone))
    name = gone.leases.owner
    await gone.close()
    assert await holder_of(other, run) == Holder(name, 1, False)
    await stepped(other, await claimed(other, run))


async def test_the_end_of_one_process_says_nothing_about_another(connect: Connect, other: Store) -> None:
    gone = await connect()
    run = await held(other)
    await claimed(gone, await created(gone))
    await gone.close()
    assert await holder_of(other, run) == Holder(other.leases.owner, 1, True)


async def test_an_exclusive_key_belongs_to_one_held_run(store: Store, other: Store) -> None:
    first = await held(store, exclusive_key="chat-1")
    second = await created(other, exclusive_key="chat-1")
    before = await everything_of(other, second.id)
    with pytest.raises(Refused) as refusal:
        await claimed(other, second)
    assert refusal.value.code == "occupied"
    assert refusal.value.details == {"holder": store.leases.owner, "run": first.id}
    assert await everything_of(other, second.id) == before


async def test_a_run_cannot_be_created_holding_a_key_in_use(store: Store, other: Store) -> None:
    first = await held(store, exclusive_key="chat-1")
    write, second = creation(owner=other.leases.owner, exclusive_key="chat-1")
    with pytest.raises(Refused) as refusal:
        await other.log.create(write, "creation")
    assert (refusal.value.code, refusal.value.details["run"]) == ("occupied", first.id)
    assert await other.log.load(second.id, fold_version=FOLD_VERSION) is None
    assert await log_of(other, second.id) == []


async def test_an_exclusive_key_is_free_as_soon_as_its_run_is_let_go_of(store: Store, other: Store) -> None:
    first = await held(store, exclusive_key="chat-1")
    second = await created(other, exclusive_key="chat-1")
    write, queued = first.then(RunQueued(why="drained", wake_at_us=first.run.updated_at_us))
    await store.log.append(write, first.lease)
    second = await claimed(other, second)
    with pytest.raises(Refused):
        await claimed(store, queued)
    write, paused = second.then(RunPaused(reason="signal"))
    await other.log.append(write, second.lease)
    first = await claimed(store, queued)
    with pytest.raises(Refused):
        await claimed(other, await requested(other, paused, RunResumed(by="tests")))


async def test_the_holder_of_a_key_can_be_taken_over_with_it(store: Store, other: Store) -> None:
    run = await claimed(other, await held(store, exclusive_key="chat-1"))
    await stepped(other, run)


async def test_different_keys_and_none_do_not_get_in_each_others_way(store: Store) -> None:
    runs = [await held(store, exclusive_key=key) for key in ("chat-1", "chat-2", None, None)]
    for run in runs:
        await stepped(store, run)


async def test_of_many_runs_claimed_at_once_under_one_key_exactly_one_wins(
    store: Store, other: Store
) -> None:
    """B4-3: of two runs in one work tree, only one may begin. H13."""
    runs = [await created(store, exclusive_key="chat-1") for _ in range(10)]
    answers = await asyncio.gather(
        *(claimed((store, other)[n % 2], run) for n, run in enumerate(runs)), return_exceptions=True
    )
    refusals = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(refusals) == 9
    assert all(isinstance(refusal, Refused) and refusal.code == "occupied" for refusal in refusals)

"""Notifications: written with the append or not at all, for those who want them.

One that is due is tried until its delivery is recorded.
"""

from __future__ import annotations

from asyncio import gather

import msgspec
import pytest

from onward.errors import LeaseLost
from onward.model.events import (
    Managed,
    RunCancelled,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunInterrupted,
    RunPaused,
    RunResumed,
    RunWaiting,
)
from onward.model.gate import GateDecided, GateOpened, GateWithdrawn
from onward.model.row import DeliveryState, Facts, NotificationKind
from onward.store.port.retention import Kin
from onward.store.port.runs import Attempted, Delivery, DeliveryQuery, Undelivered, delivery_cursor
from onward.store.port.store import Store
from tests.conformance.drafts import (
    START_US,
    TICK_US,
    Draft,
    claimed,
    created,
    fork,
    held,
    requested,
    stepped,
)
from tests.conformance.limits import begun, figures, working
from tests.conformance.questions import NO, YES, asked

GATE, STOPPED, FINISHED = NotificationKind
WAITING, DELIVERED, FAILED = DeliveryState
EVERY = tuple(NotificationKind)
DAY_US = 86_400_000_000
MINUTE_US = 60_000_000


async def subscribed(store: Store, *kinds: NotificationKind, name: str = "notify") -> None:
    await store.outbox.subscribe(name, kinds or EVERY, for_us=DAY_US)


async def written(store: Store, query: DeliveryQuery | None = None) -> list[tuple[str, str]]:
    """What is in the outbox, oldest first: run and kind."""
    found = await store.outbox.read(query or DeliveryQuery())
    return [(one.run_id, one.kind.value) for one in reversed(found)]


async def due(store: Store, *, limit: int = 10, lease_us: int = MINUTE_US) -> list[Delivery]:
    return list(await store.outbox.claim("notify", limit=limit, lease_us=lease_us))


async def finished(store: Store, run_id: str | None = None) -> Draft:
    draft = await held(store, run_id)
    write, over = draft.then(RunCompleted())
    await store.log.append(write, draft.lease)
    return over


async def test_without_a_subscriber_nothing_is_written(store: Store) -> None:
    await finished(store)
    assert await written(store) == []


async def test_whoever_appends_the_database_knows_what_is_wanted(store: Store, other: Store) -> None:
    """The process that appends never asked for anything itself."""
    run = await asked(other, await held(other, "run"))
    assert await written(store) == []
    await subscribed(store)
    run = await asked(other, run, "ask#2")
    await requested(other, run, RunPaused(reason="operator"))
    assert await written(store) == [("run", "gate"), ("run", "stopped")]


async def test_a_group_that_finds_a_new_subscriber_is_told_whole_and_once(store: Store, other: Store) -> None:
    """A writer may assume that nobody has subscribed, and the database corrects it."""
    await finished(other)
    await subscribed(store)
    drafts = [await held(other, f"heard-{number}") for number in range(5)]
    writes = [draft.then(RunCompleted())[0] for draft in drafts]
    members = zip(writes, drafts, strict=True)
    await gather(*(other.log.append(write, draft.lease) for write, draft in members))
    assert sorted(await written(store)) == [(write.run_id, "finished") for write in writes]
    for write in writes:
        assert len(await store.log.read(write.run_id, after=0, limit=99)) == write.head.seq


async def test_a_stop_that_finds_a_new_subscriber_settles_its_calls_once(store: Store, other: Store) -> None:
    """What is written again with its notifications is charged as if it had been written once."""
    await finished(other)
    run = await begun(other, await working(other, "run"), "project/p", tokens=100)
    await subscribed(store)
    await requested(other, run, RunInterrupted(reason="crash"))
    assert await written(store) == [("run", "stopped")]
    spent, reserved = await figures(store, "project/p")
    assert (spent.tokens, spent.calls, reserved.tokens, reserved.calls) == (100, 1, 0, 0)


async def test_only_the_kinds_that_are_wanted_are_written(store: Store) -> None:
    await subscribed(store, GATE, FINISHED)
    run = await asked(store, await held(store, "run"))
    await requested(store, run, RunPaused(reason="operator"))
    await finished(store, "over")
    assert await written(store) == [("over", "finished"), ("run", "gate")]
    await subscribed(store, STOPPED)
    await finished(store, "later")
    assert len(await written(store)) == 2


async def test_every_subscriber_gets_its_own_under_the_same_id(store: Store) -> None:
    await subscribed(store)
    await subscribed(store, FINISHED, name="webhook")
    run = await asked(store, await held(store))
    await requested(store, run, GateWithdrawn(gate="ask#1"), RunCancelled(reason="user"))
    found = {(one.subscriber, one.kind.value): one.id for one in await store.outbox.read(DeliveryQuery())}
    assert sorted(found) == [("notify", "finished"), ("notify", "gate"), ("webhook", "finished")]
    assert found["notify", "finished"] == found["webhook", "finished"] != found["notify", "gate"]


async def test_a_subscription_ends_by_itself_unless_it_is_renewed(store: Store, other: Store) -> None:
    await store.outbox.subscribe("notify", EVERY, for_us=0)
    await finished(other)
    assert await written(store) == []
    await store.outbox.subscribe("notify", EVERY, for_us=DAY_US)
    await store.outbox.subscribe("notify", EVERY, for_us=0, renew_us=MINUTE_US)  # it lasts for longer
    await finished(other, "run")
    assert await written(store) == [("run", "finished")]


async def test_a_refused_append_tells_nobody(store: Store, other: Store) -> None:
    await subscribed(store)
    stale = await held(store)
    await claimed(other, stale)
    write, _ = stale.then(RunCompleted())
    with pytest.raises(LeaseLost):
        await store.log.append(write, stale.lease)
    assert await written(store) == []


async def test_the_same_append_again_tells_it_once(store: Store) -> None:
    await subscribed(store)
    run = await held(store, "run")
    write, _ = run.then(RunFailed(reason="step_failed"))
    for _ in range(3):
        await store.log.append(write, run.lease)
    assert await written(store) == [("run", "stopped")]


async def test_an_ordinary_step_writes_none(store: Store) -> None:
    await subscribed(store)
    run = await stepped(store, await held(store), times=5)
    await requested(store, run, RunInterrupted(reason="rate_limit", wake_at_us=START_US + DAY_US))
    assert await written(store) == []


async def test_what_others_see_to_is_not_told(store: Store) -> None:
    """A managed run is its manager's matter, all but its questions; a restarted one goes on as another."""
    await subscribed(store)
    child = await asked(store, await held(store, "child", managed_by=Managed(run="boss", step="m#1")))
    await requested(store, child, GateWithdrawn(gate="ask#1"), RunCancelled(reason="user"))
    run = await held(store, "chain")
    write, _ = run.then(RunCompleted(restarted_as="next"))
    await store.log.append(write, run.lease)
    assert await written(store) == [("child", "gate")]


async def test_a_stop_that_the_same_append_resumes_is_told_to_nobody(store: Store) -> None:
    await subscribed(store)
    run = await held(store)
    claim = RunClaimed(token=run.run.token + 1, worker=store.leases.owner)
    await requested(store, run, RunInterrupted(reason="crash"), RunResumed(by="tests"), claim)
    assert await written(store) == []


async def test_a_fork_asks_anew_and_says_so(store: Store) -> None:
    run = await asked(store, await held(store, "run"), "fan#1.ask/ask#1")
    await subscribed(store)
    write, _ = fork(run, "fork")
    await store.log.create(write, "creation")
    assert await written(store) == [("fork", "gate")]


async def test_the_body_says_what_happened_and_what_to_type(store: Store) -> None:
    await subscribed(store)
    run = await held(store, "run-with-gate")
    opened = GateOpened(
        gate="ask#1",
        node="ask",
        text="Ship \u2714\0?",
        choices=(YES, NO),
        about="three files",
        deadline_us=START_US,
    )
    write, draft = run.then(opened, RunWaiting())
    await store.log.append(write, run.lease)
    (told,) = await due(store)
    facts = msgspec.json.decode(told.body, type=Facts)
    assert (facts.id, facts.event, facts.run, facts.status) == (told.id, GATE, "run-with-gate", "waiting")
    assert (facts.pipeline, facts.seq, facts.at) == ("story", 3, "2023-11-14T22:13:20.001000Z")
    assert facts.next == "onward answer run-with-gate"
    assert facts.gate is not None
    assert (facts.gate.text, facts.gate.about, facts.gate.choices) == (
        "Ship \u2714\0?",
        "three files",
        (YES, NO),
    )
    assert facts.gate.deadline == "2023-11-14T22:13:20.000000Z"
    draft = await requested(store, draft, GateDecided(gate="ask#1", choice=YES, by="tests"))
    draft = await claimed(store, draft)
    await requested(store, draft, RunFailed(reason="step_failed", detail="no"), append_id="stop")
    (told,) = await due(store)
    facts = msgspec.json.decode(told.body, type=Facts)
    assert (facts.event, facts.reason, facts.detail, facts.recoverable) == (
        STOPPED,
        "step_failed",
        "no",
        True,
    )
    assert (facts.gate, facts.next) == (None, "onward resume run-with-gate")


async def test_what_is_claimed_is_nobody_elses_until_its_time_is_over(store: Store, other: Store) -> None:
    await subscribed(store)
    for number in range(6):
        await finished(store, f"run-{number}")
    found = await gather(due(store, limit=3), due(other, limit=3))
    assert sorted(one.run_id for part in found for one in part) == [f"run-{number}" for number in range(6)]
    assert [one.tries for part in found for one in part] == [1] * 6
    assert await due(store) == await due(other) == []
    assert await store.outbox.waiting("notify") == 6


async def test_a_try_that_was_not_recorded_is_made_again_under_the_same_id(
    store: Store, other: Store
) -> None:
    """Its process died before the delivery or after it; nobody can tell."""
    await subscribed(store)
    await finished(store)
    (first,) = await due(store, lease_us=0)
    (second,) = await due(other)
    assert (second.id, second.body, second.tries) == (first.id, first.body, 2)


async def test_what_came_of_an_older_claim_is_not_recorded(store: Store, other: Store) -> None:
    await subscribed(store)
    await finished(store)
    (stale,) = await due(store, lease_us=0)
    (fresh,) = await due(other)
    await store.outbox.record(stale, Attempted(FAILED, error="too late"))
    assert await store.outbox.waiting("notify") == 1
    await other.outbox.record(fresh, Attempted(DELIVERED, 200))
    await other.outbox.record(fresh, Attempted(FAILED, error="again"))  # as when a reply was lost
    (found,) = await store.outbox.read(DeliveryQuery())
    assert (found.state, found.response, found.error, found.due_at_us) == (DELIVERED, 200, "", None)
    assert found.delivered_at_us is not None
    assert await store.outbox.waiting("notify") == 0


async def test_a_try_that_failed_is_made_again_after_its_time(store: Store) -> None:
    await subscribed(store)
    await finished(store, "soon")
    await finished(store, "later")
    soon, later = sorted(await due(store), key=lambda one: one.run_id == "later")
    await store.outbox.record(soon, Attempted(WAITING, 503, "HTTP 503", 0))
    await store.outbox.record(later, Attempted(WAITING, None, "refused", DAY_US))
    (again,) = await due(store)
    assert (again.run_id, again.tries, again.response, again.error) == ("soon", 2, 503, "HTTP 503")


async def test_one_that_was_given_up_stays_and_can_be_asked_for_again(store: Store) -> None:
    await subscribed(store)
    await finished(store)
    (told,) = await due(store)
    await store.outbox.record(told, Attempted(FAILED, 500, "HTTP 500"))
    assert await due(store) == []
    (found,) = await store.outbox.read(DeliveryQuery(state=FAILED))
    assert (found.tries, found.response, found.error) == (1, 500, "HTTP 500")
    (again,) = await store.outbox.retry(told.id)
    assert (again.state, again.tries) == (WAITING, 0)
    (fresh,) = await due(store)
    assert (fresh.id, fresh.tries) == (told.id, 1)
    await store.outbox.record(told, Attempted(FAILED, error="the old claim"))
    assert await store.outbox.waiting("notify") == 1
    assert await store.outbox.retry("unknown") == []


async def test_notifications_are_listed_newest_first_page_by_page(store: Store) -> None:
    await subscribed(store)
    for number in range(5):
        await requested(
            store,
            await created(store, f"run-{number}", at_us=START_US + number),
            RunPaused(reason="operator"),
        )
    seen: list[str] = []
    cursor = None
    while page := await store.outbox.read(DeliveryQuery(after=cursor, limit=2)):
        seen += [one.run_id for one in page]
        cursor = delivery_cursor(page[-1])
    assert seen == [f"run-{number}" for number in reversed(range(5))]
    assert await written(store, DeliveryQuery(run_id="run-3")) == [("run-3", "stopped")]
    assert await written(store, DeliveryQuery(run_id="run-3", state=DELIVERED)) == []


async def test_what_waits_and_what_was_given_up_is_measured(store: Store) -> None:
    assert (await store.measures.measure()).undelivered == Undelivered(0, 0, None)
    await subscribed(store)
    for _ in range(3):
        await finished(store)
    first, second, _ = await due(store)
    await store.outbox.record(first, Attempted(FAILED, error="no"))
    await store.outbox.record(second, Attempted(DELIVERED, 200))
    assert (await store.measures.measure()).undelivered == Undelivered(1, 1, START_US + TICK_US)


async def test_what_was_told_of_a_run_goes_with_it(store: Store) -> None:
    await subscribed(store)
    run, _ = await finished(store, "run"), await finished(store, "other")
    (told, *_) = [one for one in await due(store) if one.run_id == "run"]
    kin = Kin(id="run", head=run.position.seq, status=run.run.status)
    assert await store.retention.delete([kin]) == ["run"]
    assert await written(store) == [("other", "finished")]
    await store.outbox.record(told, Attempted(DELIVERED, 200))  # it was on its way
    assert await written(store) == [("other", "finished")]

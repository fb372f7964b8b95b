"""The courier: at least once, later each time, and never in the way of a run."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence

import pytest

from onward.errors import StoreUnavailable
from onward.model.row import DeliveryState, NotificationKind
from onward.notify.courier import AT_ONCE_MAX, CUT_OFF, TRIES_MAX, Courier, SendResult
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.runs import Delivery, DeliveryQuery, Outbox
from onward.store.port.store import Store
from onward.testing.clock import ManualClock, SeededDice
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.notifications import finished
from tests.world import World, line, until

pytestmark = pytest.mark.anyio
WAITING, DELIVERED, FAILED = DeliveryState


class Recorder:
    """A receiver that answers from a list, and then well; or, if it `hangs`, never."""

    def __init__(self, *answers: SendResult | Exception, hangs: bool = False) -> None:
        self.answers, self.hangs = list(answers), hangs
        self.begun: list[Delivery] = []
        self.ended = 0
        self.is_closed = False

    async def send(self, delivery: Delivery) -> SendResult:
        self.begun.append(delivery)
        if self.hangs:
            await asyncio.Event().wait()
        answer = self.answers.pop(0) if self.answers else SendResult(200)
        self.ended += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed = True


class Post:
    """A courier at a database, with what it said."""

    def __init__(
        self, store: Store, clock: ManualClock, recorder: Recorder, redactor: Redactor = NOTHING_SECRET
    ) -> None:
        self.said: list[str] = []
        self.counted: list[str] = []
        self.courier = Courier(
            store.outbox,
            recorder,
            clock,
            SeededDice(1),
            kinds=tuple(NotificationKind),
            timeout_s=1.0,
            warn=self.said.append,
            redactor=redactor,
            count=self.counted.append,
        )


def database() -> tuple[ManualClock, MemoryDatabase]:
    clock = ManualClock()
    return clock, MemoryDatabase(clock.now_us)


async def kept(store: Store) -> Sequence[Delivery]:
    """What the outbox has, oldest first."""
    return list(reversed(await store.outbox.read(DeliveryQuery())))


async def test_a_receiver_that_never_answers_delays_no_step(world: World) -> None:
    """Not even when it has been asked as often at once as it may be."""
    process, recorder = await world.process(), Recorder(hangs=True)
    post = Post(process.store, process.clock, recorder)
    steps = [f"s{number}" for number in range(10)]
    async with post.courier.at_work():
        for number in range(AT_ONCE_MAX + 2):
            run = await process.start(line(*steps), f"run-{number}")
            assert run.status.value == "completed"
            assert (await process.completed(f"run-{number}"))[1:-1] == [f"{step}#1" for step in steps]
            await until(lambda seen=number: len(recorder.begun) >= min(seen + 1, AT_ONCE_MAX))  # type: ignore[misc]
        assert (len(recorder.begun), recorder.ended) == (AT_ONCE_MAX, 0)


async def test_a_receiver_that_is_down_costs_a_run_no_append(world: World) -> None:
    """The log of a run is the same whether its notifications arrive or not."""
    kinds = {}
    for name, recorder in (("well", Recorder()), ("down", Recorder(*[SendResult(None, "refused")] * 99))):
        process = await world.process()
        post = Post(process.store, process.clock, recorder)
        async with post.courier.at_work():
            await process.start(line("a", "b", "c"), name)
            await until(lambda sent=recorder: sent.ended > 0)  # type: ignore[misc]
        kinds[name] = await process.kinds(name)
    assert kinds["well"] == kinds["down"]


async def test_a_notification_is_tried_later_each_time_until_it_is_given_up() -> None:
    clock, memory = database()
    store, recorder = memory.connect(), Recorder(*[SendResult(500, "HTTP 500")] * 99)
    post = Post(store, clock, recorder)
    async with post.courier.at_work():
        await finished(store, "run")
        await until(lambda: len(recorder.begun) == TRIES_MAX and bool(post.said))
    times = [one.tried_at_us or 0 for one in recorder.begun]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert all(pause >= 2_500_000 * 2**number for number, pause in enumerate(pauses[:9]))
    assert {one.id for one in recorder.begun} == {recorder.begun[0].id}
    (found,) = await kept(store)
    assert (found.state, found.tries, found.response, found.error) == (FAILED, TRIES_MAX, 500, "HTTP 500")
    (said,) = post.said
    assert f"onward notifications --retry {found.id}" in said
    assert post.counted == ["again"] * (TRIES_MAX - 1) + ["failed"]


@pytest.mark.parametrize("said", ["bell \a and \x1b]0;owned\a", "half \ud800", "nothing \0"])
async def test_whatever_a_receiver_says_is_recorded_and_can_be_shown(world: World, said: str) -> None:
    """In every store, and without what a terminal would obey."""
    process, recorder = await world.process(), Recorder(SendResult(500, said))
    post = Post(process.store, process.clock, recorder)
    async with post.courier.at_work():
        await process.start(line("a"))
        await until(lambda: bool(post.counted))
    found = next(one for one in await kept(process.store) if one.id == recorder.begun[0].id)
    assert found.error.startswith(said.split()[0])
    assert found.error.isprintable()
    assert not [line for line in post.said if "cannot" in line]


async def test_a_defect_of_a_sender_is_recorded_and_reaches_nobody() -> None:
    clock, memory = database()
    store, recorder = memory.connect(), Recorder(RuntimeError("oh"))
    async with Post(store, clock, recorder).courier.at_work():
        await finished(store)
        await until(lambda: len(recorder.begun) == 2)
    assert (recorder.begun[1].tries, recorder.begun[1].error) == (2, "RuntimeError: oh")
    assert recorder.is_closed


async def test_before_the_process_ends_what_is_due_is_delivered() -> None:
    clock, memory = database()
    store, recorder = memory.connect(), Recorder()
    post = Post(store, clock, recorder)
    async with post.courier.at_work():
        for _ in range(AT_ONCE_MAX * 3):
            await finished(store)
    assert {one.state for one in await kept(store)} == {DELIVERED}
    assert len(recorder.begun) == AT_ONCE_MAX * 3
    assert post.said == []


async def test_what_remains_is_told_and_left_to_the_next_process() -> None:
    """One that hangs is cut off, and due at once: nobody waits for a lease."""
    clock, memory = database()
    first, second = memory.connect(), memory.connect()
    hanging = Recorder(hangs=True)
    post = Post(first, clock, hanging)
    began_s = clock.awake_s()
    async with post.courier.at_work():
        await finished(first, "run")
    assert clock.awake_s() - began_s <= 12
    assert post.said[0] == "waiting for 1 notification to be delivered; press Ctrl-C to stop waiting"
    assert post.said[1].startswith("1 notification is not delivered yet; the next worker or run")
    (left,) = await kept(first)
    assert (left.state, left.error) == (WAITING, CUT_OFF)
    await first.close()
    recorder = Recorder()
    async with Post(second, clock, recorder).courier.at_work():
        pass
    assert [one.id for one in recorder.begun] == [one.id for one in hanging.begun]
    assert [one.state for one in await kept(second)] == [DELIVERED]


async def test_a_process_that_is_asked_to_stop_waits_for_no_delivery() -> None:
    clock, memory = ManualClock(autojump=False), MemoryDatabase()
    store, recorder = memory.connect(), Recorder(hangs=True)
    post = Post(store, clock, recorder)

    async def work() -> None:
        async with post.courier.at_work():
            await finished(store)

    post.courier.hurry()  # a run is asked to stop: that is told like every stop
    working = asyncio.create_task(work())
    await until(lambda: len(recorder.begun) == 1 and clock.waiting == 1)
    assert not working.done()
    post.courier.hurry()
    await working
    assert [(one.state, one.error) for one in await kept(store)] == [(WAITING, CUT_OFF)]


async def test_what_nobody_delivered_for_days_is_old_news() -> None:
    clock, memory = database()
    store, recorder = memory.connect(), Recorder()
    await Post(store, clock, recorder).courier.subscribe()
    await finished(store)  # in November 2023 by its own clock
    clock.advance(4 * 86_400)
    async with Post(store, clock, recorder).courier.at_work():
        pass
    assert recorder.begun == []
    assert [(one.state, one.error) for one in await kept(store)] == [
        (FAILED, "it was not delivered within 3 days")
    ]


async def test_a_database_out_of_reach_is_told_once_and_tried_again() -> None:
    clock, memory = database()

    class Flaky(Around[Outbox]):
        calls = 0

        async def claim(self, subscriber: str, *, limit: int, lease_us: int) -> Sequence[Delivery]:
            Flaky.calls += 1
            if Flaky.calls < 5:
                raise StoreUnavailable("gone for a while.")
            return await self.part.claim(subscriber, limit=limit, lease_us=lease_us)

    store, recorder = FaultyStore(memory.connect(), outbox=Flaky), Recorder()
    post = Post(store, clock, recorder)
    async with post.courier.at_work():
        await finished(store)
        await until(lambda: recorder.ended == 1)
    assert post.said == ["cannot look for notifications: gone for a while."]


async def test_a_run_in_the_same_process_is_told_at_once(world: World) -> None:
    """Without a look at the clock: the observer wakes the courier."""
    posts: list[Post] = []
    clock = ManualClock(autojump=False)
    process = await world.process(
        clock=clock, observe=lambda run, events: posts[0].courier.observe(run, events)
    )
    recorder = Recorder()
    posts.append(Post(process.store, clock, recorder))
    async with posts[0].courier.at_work():
        await process.start(line("a"))
        await until(lambda: recorder.ended == 1)


async def test_neither_what_is_told_nor_what_is_answered_has_a_secret() -> None:
    """The answer is cut after that, so that half a secret is not kept either."""
    clock, memory = database()
    secret, mark = "value-of-a-secret", "[redacted KEY]"
    store, recorder = memory.connect(), Recorder(SendResult(403, f"HTTP 403: {'x' * 280} {secret} is wrong"))
    async with Post(store, clock, recorder, Redactor({"KEY": secret})).courier.at_work():
        await finished(store, f"of-{secret}")
        await until(lambda: len(recorder.begun) == 2)
    assert [json.loads(one.body)["run"] for one in recorder.begun] == [f"of-{mark}"] * 2
    assert recorder.begun[1].error == f"HTTP 403: {'x' * 280} [redacted"[:300]

"""Random schedules of calls, streams, deaths, forks and changed limits, beside a model that only adds up.

Two processes share some runs. After every commit the scopes must be what the model says, and no limit
oversold, unless it was lowered. In the end the tables are what the logs add up to, and nothing is stuck.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from onward.errors import LeaseLost, LimitReached
from onward.model.call import CallFinished, CallLost, CallStarted, CallStatus, Reserved, Streamed
from onward.model.chat import Chunk, ChunkKind, message_id
from onward.model.events import Event, RunClaimed, RunPaused, RunResumed, StepStarted
from onward.model.limits import CHAT_TOKENS
from onward.operations.here.verify import verify_run
from onward.store.codec import unseal
from onward.store.port.messages import Flushed, Growth
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.chance import examples
from tests.conformance.drafts import Draft, fork, held
from tests.conformance.limits import used
from tests.world import connect_to_memory

ALL = 2**31
OPS = ("call", "stream", "settle", "fail", "lose", "die", "again", "limit", "reset", "fork", "stop")
MOVES = st.lists(
    st.tuples(st.sampled_from(OPS), st.integers(0, 3), st.integers(1, 120)), min_size=8, max_size=40
)


@dataclass
class Talker:
    """A run as its holder knows it, and what the model knows of it."""

    draft: Draft
    place: int
    scopes: tuple[str, ...]
    step: str = "start#1"
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    number: int = 0
    reserved: int = 0
    first: int = 1
    text: dict[str, str] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.number > 0

    @property
    def message(self) -> str:
        return message_id(self.draft.id, self.step, "m1", self.number)


class Schedule:
    """The runs, the stores of two processes, and the sums."""

    def __init__(self, stores: list[Store], name: str) -> None:
        self.stores, self.runs, self.chat = stores, list[Talker](), name
        self.spent: Counter[str] = Counter()
        self.reserved: Counter[str] = Counter()
        self.limits: dict[str, int] = {}
        self.lowered: set[str] = set()
        self.begun = 0

    async def add(self, id: str, place: int) -> None:
        store = self.stores[place]
        draft = await held(store, id, chat=self.chat)
        talker = Talker(draft, place, self._scopes_of(id))
        self.runs.append(talker)
        await self._append(talker, StepStarted(step=talker.step, node="start", attempt=1))

    async def play(self, move: str, which: int, amount: int) -> None:
        talker = self.runs[which % len(self.runs)]
        await getattr(self, f"do_{move}")(talker, amount)
        await self.check()

    async def check(self) -> None:
        """Every scope is what the sums say, and sold no more than it has."""
        for scope in await self.stores[0].limits.read([*self._scopes()]):
            assert scope.spent.tokens == self.spent[scope.id]
            assert scope.reserved.tokens == self.reserved[scope.id]
            first = CHAT_TOKENS if scope.id.startswith("chat/") else 0
            assert scope.limit.tokens == self.limits.get(scope.id, first)
            taken = scope.spent.tokens + scope.reserved.tokens
            assert not scope.limit.tokens or taken <= scope.limit.tokens or scope.id in self.lowered

    def _scopes_of(self, run_id: str) -> tuple[str, ...]:
        return f"chat/{self.chat}", f"project/{self.chat}", f"run/{run_id}"

    def _scopes(self) -> set[str]:
        return {scope for talker in self.runs for scope in talker.scopes}

    async def _append(self, talker: Talker, *events: Event) -> None:
        write, after = talker.draft.then(*events)
        await self.stores[talker.place].log.append(write, talker.draft.lease)
        talker.draft = after

    # -- moves ---------------------------------------------------------------------------------------

    async def do_call(self, talker: Talker, amount: int) -> None:
        """A call begins if it fits every limit, and is refused for the right reason if not."""
        if talker.is_open:
            return
        number = next(talker.numbers)
        streamed = Streamed(chat=self.chat, message=message_id(talker.draft.id, talker.step, "m1", number))
        reserved = Reserved(scopes=talker.scopes, tokens=amount)
        started = CallStarted(
            step=talker.step,
            attempt=1,
            call="m1",
            number=number,
            type="model",
            reserved=reserved,
            streamed=streamed,
        )
        over = [scope for scope in talker.scopes if self._is_over(scope, amount, self.reserved)]
        if over:
            with pytest.raises(LimitReached) as refused:
                await self._append(talker, started)
            assert refused.value.scope in over
            is_spent = any(self._is_over(scope, amount) for scope in talker.scopes)
            assert refused.value.fits_spent is not is_spent
            return
        await self._append(talker, started)
        talker.number, talker.reserved, talker.first = number, amount, 1
        talker.text[talker.message] = ""
        self.begun += 1
        self.reserved.update(dict.fromkeys(talker.scopes, amount))

    def _is_over(self, scope: str, amount: int, reserved: Counter[str] | None = None) -> bool:
        limit = self.limits.get(scope, 0)
        return bool(limit) and self.spent[scope] + (reserved or Counter())[scope] + amount > limit

    async def do_stream(self, talker: Talker, amount: int) -> None:
        """A flush is stored; made again, because its reply was lost, it changes nothing."""
        if not talker.is_open:
            return
        text = "x" * amount
        grown = Growth(
            self.chat,
            talker.message,
            talker.draft.id,
            talker.draft.run.token,
            talker.first,
            [(ChunkKind.TEXT, text)],
        )
        for _ in range(1 + amount % 2):
            assert [*await self.stores[talker.place].messages.flush([grown], 1)] == [Flushed.STORED]
        talker.text[talker.message] += text
        talker.first += 1

    async def do_settle(self, talker: Talker, amount: int) -> None:
        if talker.is_open:
            cost = min(amount, talker.reserved)
            await self._append(talker, self._ended(talker, usage=used(cost)))
            self._settled(talker, cost)

    async def do_fail(self, talker: Talker, amount: int) -> None:
        """An error costs nothing, or what was reserved if nobody knows."""
        if talker.is_open:
            is_unknown = amount % 2 == 0
            failed = self._ended(talker, status=CallStatus.ERROR, error="no", is_cost_unknown=is_unknown)
            await self._append(talker, failed)
            self._settled(talker, talker.reserved if is_unknown else 0)

    async def do_lose(self, talker: Talker, amount: int) -> None:
        if talker.is_open:
            await self._append(
                talker, CallLost(step=talker.step, call="m1", number=talker.number, why="lost")
            )
            self._settled(talker, talker.reserved)

    async def do_again(self, talker: Talker, amount: int) -> None:
        """The end of a call is written, its reply is lost, and it is written again."""
        if talker.is_open:
            cost = min(amount, talker.reserved)
            write, after = talker.draft.then(self._ended(talker, usage=used(cost)))
            for _ in range(2):
                await self.stores[talker.place].log.append(write, talker.draft.lease)
            talker.draft = after
            self._settled(talker, cost)

    async def do_die(self, talker: Talker, amount: int) -> None:
        """The other process takes the run over; the first wakes up, and can neither write nor charge."""
        stale, old, was_open = talker.draft, talker.place, talker.is_open
        late = Growth(
            self.chat, talker.message, stale.id, stale.run.token, talker.first, [(ChunkKind.TEXT, "late")]
        )
        ends = stale.then(self._ended(talker, usage=used(1)))[0] if was_open else None
        talker.place = 1 - old
        claim = RunClaimed(
            token=stale.run.token + 1, worker=self.stores[talker.place].leases.owner, lost=True
        )
        await self._control(talker, claim)
        if was_open:
            self._settled(talker, talker.reserved)
        await self._append(talker, StepStarted(step=talker.step, node="start", attempt=1))
        if ends is not None:
            assert [*await self.stores[old].messages.flush([late], 1)] == [Flushed.REFUSED]
            with pytest.raises(LeaseLost):
                await self.stores[old].log.append(ends, stale.lease)

    async def do_stop(self, talker: Talker, amount: int) -> None:
        """A request that stops the run ends its call; then it is resumed."""
        was_open, place = talker.is_open, talker.place
        await self._control(talker, RunPaused(reason="operator"))
        if was_open:
            self._settled(talker, talker.reserved)
        claim = RunClaimed(token=talker.draft.run.token + 1, worker=self.stores[place].leases.owner)
        await self._control(talker, RunResumed(by="tests"), claim)
        await self._append(talker, StepStarted(step=talker.step, node="start", attempt=1))

    async def do_limit(self, talker: Talker, amount: int) -> None:
        """A limit is set, raised or lowered."""
        scope, value = talker.scopes[amount % len(talker.scopes)], amount * 5
        await self.stores[talker.place].limits.change(scope, {"tokens": value})
        self.limits[scope] = value
        is_low = self.spent[scope] + self.reserved[scope] > value
        (self.lowered.add if is_low else self.lowered.discard)(scope)

    async def do_reset(self, talker: Talker, amount: int) -> None:
        scope = talker.scopes[amount % len(talker.scopes)]
        await self.stores[talker.place].limits.change(scope, {"tokens": None})
        self.limits.pop(scope, None)
        self.lowered.discard(scope)

    async def do_fork(self, talker: Talker, amount: int) -> None:
        """A fork begins at nothing, and settles nothing of its parent."""
        if len(self.runs) > 4:
            return
        write, draft = fork(talker.draft, f"{self.chat}-{len(self.runs)}")
        await self.stores[talker.place].log.create(write, "fork")
        child = Talker(
            draft,
            talker.place,
            self._scopes_of(draft.id),
            f"start#{draft.run.visits['start'] + 1}",
        )
        self.runs.append(child)
        claim = RunClaimed(token=draft.run.token + 1, worker=self.stores[child.place].leases.owner)
        await self._control(child, claim)
        await self._append(child, StepStarted(step=child.step, node="start", attempt=1))

    async def _control(self, talker: Talker, *events: Event) -> None:
        write, after = talker.draft.then(*events)
        log, draft = self.stores[talker.place].log, talker.draft
        await log.control(
            draft.id, since=draft.position.seq, append_id=str(after.position.seq), decide=lambda *_: write
        )
        talker.draft = after

    def _ended(self, talker: Talker, **fields: object) -> CallFinished:
        given = {"status": CallStatus.OK, "type": "model", **fields}
        return CallFinished(step=talker.step, attempt=1, call="m1", number=talker.number, **given)  # type: ignore[arg-type]

    def _settled(self, talker: Talker, cost: int) -> None:
        self.spent.update(dict.fromkeys(talker.scopes, cost))
        self.reserved.subtract(dict.fromkeys(talker.scopes, talker.reserved))
        talker.number = talker.reserved = 0

    # -- the end -------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Close everything; the tables are what the logs add up to, and a call that fits can begin."""
        for talker in self.runs:
            await self.do_settle(talker, 1)
            assert (await verify_run(self.stores[0], talker.draft.id)).problems == ()
        await self.check()
        assert +self.reserved == Counter()
        counted = Counter[str]()
        for talker in self.runs:
            counted.update(await self._logged(talker.draft.id))
        assert +counted == +self.spent
        assert await self._heard() == {id: text for talker in self.runs for id, text in talker.text.items()}
        for scope in self._scopes():
            await self.stores[0].limits.change(scope, {"tokens": self.spent[scope] + 10})
            self.limits[scope] = self.spent[scope] + 10
        begun = self.begun
        await self.do_call(self.runs[0], 10)
        assert self.begun == begun + 1, "a call that fits is stuck"

    async def _logged(self, run_id: str) -> Counter[str]:
        """What the run's own log says was spent in each scope."""
        total, opened = Counter[str](), dict[tuple[str, int], Reserved]()
        for record in await self.stores[0].log.read(run_id, after=0, limit=ALL):
            event = unseal(record)
            if record.run_id != run_id:
                continue
            if isinstance(event, CallStarted) and event.reserved is not None:
                opened[event.step, event.number] = event.reserved
            elif isinstance(event, CallFinished | CallLost):
                reserved = opened.pop((event.step, event.number), None)
                if reserved is None:  # it was begun by the run that this one is a fork of
                    continue
                is_most = isinstance(event, CallLost) or event.is_cost_unknown
                usage = None if isinstance(event, CallLost) else event.usage
                cost = reserved.tokens if is_most else (usage.tokens if usage else 0)
                total.update(dict.fromkeys(reserved.scopes, cost))
        assert opened == {}
        return total

    async def _heard(self) -> dict[str, str]:
        """What a reader gets from the chat, page by page."""
        texts, ended, cursor = dict[str, str](), set[str](), 0
        while found := await self.stores[1].messages.read(self.chat, after=cursor, limit=3):
            for one in found:
                assert isinstance(one, Chunk)
                assert one.position == cursor + 1
                assert one.message not in ended, "a chunk after the end"
                cursor = one.position
                texts[one.message] = texts.get(one.message, "") + (
                    one.text if one.kind is ChunkKind.TEXT else ""
                )
                if one.kind is ChunkKind.END:
                    ended.add(one.message)
        assert ended == texts.keys()
        return texts


Connect = Callable[[], Awaitable[Store]]
Move = tuple[str, int, int]
_numbers = itertools.count()


async def play(connect: Connect, moves: list[Move]) -> None:
    """Play a schedule in a chat and a project of its own."""
    stores = [await connect(), await connect()]
    try:
        schedule = Schedule(stores, f"talk{next(_numbers)}")
        for place in (0, 1):
            await schedule.add(f"{schedule.chat}-{place}", place)
        for move in moves:
            await schedule.play(*move)
        await schedule.finish()
    finally:
        for store in stores:
            await store.close()


EVERYTHING: list[Move] = [
    *(("limit", 0, 60), ("call", 0, 100), ("stream", 0, 7), ("die", 0, 1), ("call", 0, 90), ("stream", 0, 8)),
    *(("fork", 0, 1), ("call", 2, 80), ("settle", 0, 50), ("call", 1, 120), ("limit", 1, 10), ("call", 1, 9)),
    *(("stop", 2, 1), ("reset", 0, 60), ("call", 1, 99), ("again", 1, 30), ("call", 1, 5), ("fail", 1, 2)),
]
"""Every move at least once, with a limit that is reached, lowered and taken away."""


@asynccontextmanager
async def on_sqlite() -> AsyncIterator[Connect]:
    with TemporaryDirectory() as place:
        yield lambda: open_store(f"{place}/onward.db")


@examples(100)
@given(moves=MOVES)
@example(moves=EVERYTHING)
async def test_no_schedule_oversells_a_limit_in_memory(moves: list[Move]) -> None:
    """I32: spent and reserved are within each limit at each commit, and are what the logs add up to."""
    await play(connect_to_memory(), moves)


@examples(15)
@given(moves=MOVES)
@example(moves=EVERYTHING)
async def test_no_schedule_oversells_a_limit_on_sqlite(moves: list[Move]) -> None:
    """I32: the same."""
    async with on_sqlite() as connect:
        await play(connect, moves)


@pytest.mark.postgres
@examples(6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES)
@example(moves=EVERYTHING)
async def test_no_schedule_oversells_a_limit_on_postgres(
    postgres_emptied_url: str, moves: list[Move]
) -> None:
    """I32: the same."""
    await play(lambda: open_store(postgres_emptied_url), moves)

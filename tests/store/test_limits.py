"""Limits under random schedules, beside a model of what must come of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from onward.errors import LimitReached
from onward.model.call import CallFinished, CallLost, CallStarted, Usage
from onward.model.events import StepStarted
from onward.model.limits import NO_AMOUNTS, Amounts, amounts_of, used_amounts
from onward.store.codec import unseal
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.limits import ReservationState
from onward.store.port.store import Store
from onward.store.sqlite.adapter import SqliteStore
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.chance import examples
from tests.conformance.drafts import Draft, claimed, fork, log_of
from tests.conformance.limits import beginning, ending, working

SCOPES = ("chat/c", "day/2023-11-14", "project/p", "run/r0")
Open = Callable[[], Store]


@dataclass
class Model:
    """Two processes, their runs, and what is open, charged and allowed according to plain arithmetic."""

    stores: Sequence[Store]
    runs: list[tuple[Store, Draft]] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    open: dict[tuple[str, str, int], tuple[tuple[str, ...], int]] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SCOPES, 0))
    lowered: set[str] = field(default_factory=set)
    calls: int = 0

    def reserved(self, scope: str) -> int:
        return sum(tokens for scopes, tokens in self.open.values() if scope in scopes)

    def has_room(self, scope: str, tokens: int) -> bool:
        limit = self.limits.get(scope)
        return not limit or self.spent[scope] + self.reserved(scope) + tokens <= limit

    def settle(self, key: tuple[str, str, int], charged: int | None) -> None:
        scopes, tokens = self.open.pop(key)
        for scope in scopes:
            self.spent[scope] += tokens if charged is None else charged

    async def reserve(self, at: int, scopes: Sequence[str], tokens: int) -> None:
        store, run = self.runs[at % len(self.runs)]
        self.calls += 1
        key, chosen = (run.id, f"m{self.calls}", 1), tuple(sorted(set(scopes)))
        write, after = beginning(run, *chosen, call=key[1], tokens=tokens)
        if not all(self.has_room(scope, tokens) for scope in chosen):
            with pytest.raises(LimitReached) as refused:
                await store.log.append(write, run.lease)
            scope = refused.value.scope
            assert refused.value.fits_spent == (self.spent[scope] + tokens <= self.limits[scope])
            return
        await store.log.append(write, run.lease)
        self.open[key] = chosen, tokens
        self.runs[at % len(self.runs)] = store, after

    async def end(self, at: int, charged: int | None) -> None:
        if not self.open:
            return
        key = sorted(self.open)[at % len(self.open)]
        place = next(n for n, (_, run) in enumerate(self.runs) if run.id == key[0])
        store, run = self.runs[place]
        usage = None if charged is None else Usage(output=min(charged, self.open[key][1]))
        write, after = ending(run, key[1], **({"lost": True} if usage is None else {"usage": usage}))
        for _ in range(2):  # the reply to the first was lost
            await store.log.append(write, run.lease)
        self.settle(key, None if usage is None else usage.output)
        self.runs[place] = store, after

    async def take_over(self, at: int) -> None:
        place = at % len(self.runs)
        store, run = self.runs[place]
        other = self.stores[1 - self.stores.index(store)]
        after = await claimed(other, run)
        for key in [key for key in self.open if key[0] == run.id]:
            self.settle(key, None)
        self.runs[place] = other, after
        write, begun = after.then(StepStarted(step="start#1", node="start", attempt=1), with_row=False)
        await other.log.append(write, after.lease)
        self.runs[place] = other, begun

    async def change(self, scope: str, limit: int | None) -> None:
        await self.stores[0].limits.change(scope, {"tokens": limit})
        self.limits[scope] = limit or 0
        self.lowered.discard(scope)
        if limit and self.spent[scope] + self.reserved(scope) > limit:
            self.lowered.add(scope)

    async def fork(self, at: int) -> None:
        store, run = self.runs[at % len(self.runs)]
        write, _ = fork(run)
        await store.log.create(write, "fork")

    async def check(self) -> None:
        for scope in await self.stores[1].limits.read(SCOPES):
            assert (scope.spent.tokens, scope.reserved.tokens) == (
                self.spent[scope.id],
                self.reserved(scope.id),
            )
            if scope.limit.tokens and scope.id not in self.lowered:
                assert scope.spent.tokens + scope.reserved.tokens <= scope.limit.tokens


async def spent_by_logs(store: Store, runs: Sequence[Draft]) -> dict[str, Amounts]:
    """What the logs of the runs say was spent in each scope."""
    sums = dict.fromkeys(SCOPES, NO_AMOUNTS)
    for run in runs:
        begun: dict[tuple[str, int], CallStarted] = {}
        for record in await log_of(store, run.id):
            event = unseal(record)
            if isinstance(event, CallStarted):
                begun[event.call, event.number] = event
            elif isinstance(event, CallFinished | CallLost):
                reserved = begun[event.call, event.number].reserved
                assert reserved is not None
                most = amounts_of(reserved)
                charged = most
                if isinstance(event, CallFinished):
                    charged = used_amounts(event.usage, event.cost_micro, most)
                for scope in reserved.scopes:
                    sums[scope] = sums[scope].plus(charged)
    return sums


ANY = st.integers(0, 7)
TOKENS = st.integers(0, 60)
ACTIONS = st.one_of(
    st.tuples(st.just("reserve"), ANY, st.lists(st.sampled_from(SCOPES), min_size=1, max_size=4), TOKENS),
    st.tuples(st.just("end"), ANY, st.none() | TOKENS),
    st.tuples(st.just("take_over"), ANY),
    st.tuples(st.just("change"), st.sampled_from(SCOPES), st.none() | st.integers(0, 200)),
    st.tuples(st.just("fork"), ANY),
)


async def played(stores: Sequence[Store], schedule: Sequence[tuple[Any, ...]]) -> None:
    model = Model(stores)
    for number in range(3):
        store = stores[number % 2]
        model.runs.append((store, await working(store, f"r{number}")))
    for name, *values in schedule:
        await getattr(model, name)(*values)
        await model.check()
    runs = [run for _, run in model.runs]
    said = await spent_by_logs(stores[0], runs)
    for scope in await stores[0].limits.read(SCOPES):
        assert scope.spent == said[scope.id]
    made = [one for run in runs for one in await stores[0].limits.reservations(run.id)]
    assert sum(one.state is ReservationState.OPEN for one in made) == len(model.open)
    for store in stores:
        await store.close()


@examples(150)
@given(schedule=st.lists(ACTIONS, max_size=40))
def test_no_schedule_oversells_a_limit_or_stops_for_nothing(schedule: list[tuple[Any, ...]]) -> None:
    """And what is spent according to the tables is what the logs add up to."""
    database = MemoryDatabase()
    asyncio.run(played([database.connect(), database.connect()], schedule))


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=st.lists(ACTIONS, max_size=25))
def test_no_schedule_does_so_on_sqlite(tmp_path_factory: pytest.TempPathFactory, schedule: list[Any]) -> None:
    path = tmp_path_factory.mktemp("limits") / "onward.db"
    Path(path).touch(0o600)
    asyncio.run(played([SqliteStore(str(path)), SqliteStore(str(path))], schedule))


@pytest.mark.postgres
@examples(4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=st.lists(ACTIONS, max_size=25))
def test_no_schedule_does_so_on_postgres(
    postgres_server: PostgresServer, postgres_template: str, schedule: list[Any]
) -> None:
    url = postgres_server.create_database(template=postgres_template)

    async def play() -> None:
        await played([await open_store(url), await open_store(url)], schedule)

    asyncio.run(play())
    postgres_server.drop_database(url)

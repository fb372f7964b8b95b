"""What a worker counts about calls, held against what really happened, on every store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from onward.agents.model import TokenUsage as Counted
from onward.errors import StoreUnavailable
from onward.handlers.calls import CallAnswer, CallOptions
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.call import Reserved, Usage
from onward.model.chat import ChunkKind
from onward.model.run import RunStatus
from onward.observe.figures import render
from onward.observe.metrics import REFUSED, CallMetrics, Health, Metrics, watched_store
from onward.store.port.messages import Flushed, Growth
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from onward.testing.script import ScriptedReply, ScriptRule
from tests.agents.test_agent_step import NAME, at, model
from tests.conformance.faults import Died, Fault, FaultyStore
from tests.world import World, line, until

pytestmark = pytest.mark.anyio
PROJECT = "project/p"


def watched(metrics: Metrics, store: Store) -> FaultyStore:
    return FaultyStore(watched_store(store, metrics, Health(0.0), ManualClock()))


def watching(metrics: Metrics) -> dict[str, Any]:
    return {"wrap": partial(watched, metrics), "observe": metrics.observe}


async def test_calls_are_counted_with_their_tokens_and_cost(world: World) -> None:
    """S2-32."""
    metrics = Metrics()
    usage = Counted(input=1_000, output=500, cached_input=300, reasoning=200, cache_write=50)
    scripted = model(
        ScriptRule(nth=1, reply=ScriptedReply(status=500)),
        ScriptRule(nth=2, reply=ScriptedReply(text="Größe!", usage=usage)),
    )
    process = await at(world, scripted, **watching(metrics))
    assert (await process.start(line("a"))).status is RunStatus.COMPLETED
    found = metrics.calls
    assert found.calls.value("model", NAME, "error") == 1
    assert found.calls.value("model", NAME, "ok") == found.seconds.count("model", NAME) - 1 == 1
    kinds = ("input", "output", "cached", "reasoning", "cache_write")
    assert [found.tokens.value(NAME, kind) for kind in kinds] == [1_000, 500, 300, 200, 50]
    assert found.cost.value(NAME) == pytest.approx(0.002)
    assert found.bytes.value() == len("Größe!".encode())
    assert found.chunks.value() >= 1
    assert found.flushes.count() >= 1
    assert (found.lost.value(), process.engine.flusher.streams, process.engine.waiting.number) == (0, 0, 0)


async def test_the_calls_of_a_dead_process_are_counted_by_the_one_that_finds_them(world: World) -> None:
    """S2-29."""

    async def dies(step: StepContext) -> None:
        async def ask() -> None:
            raise Died

        await step.recorder.call("ask", ask, (), CallOptions(repeatable=False))

    first = await world.process(handlers={"codergen": FunctionHandler(dies)})
    with pytest.raises(Died):
        await first.start(line("a"))
    await first.die()
    metrics = Metrics()
    second = await world.process(**watching(metrics))
    assert len((await second.engine.sweep()).stopped) == 1
    assert metrics.calls.lost.value() == 1


async def test_an_open_stream_and_a_call_that_waits_for_room_are_seen_while_they_last(world: World) -> None:
    """S2-32."""
    door, metrics = asyncio.Event(), Metrics()

    async def reserves(step: StepContext) -> None:
        async def ask(message: Any) -> CallAnswer:
            message.write(ChunkKind.TEXT, "so far")
            await door.wait()
            return CallAnswer(None, usage=Usage(), cost_micro=0)

        reserved = Reserved(scopes=(PROJECT,), tokens=10)
        await step.recorder.call("ask", ask, (), CallOptions(reserved=reserved, chat=f"run/{step.run_id}"))

    handlers = {"codergen": FunctionHandler(reserves)}
    process = await world.process(handlers=handlers, **watching(metrics))
    engine = process.engine
    metrics.calls.streams.follow(lambda: engine.flusher.streams)
    metrics.calls.waiting.follow(lambda: engine.waiting.number)
    await process.store.limits.change(PROJECT, {"tokens": 10})
    first = asyncio.create_task(process.start(line("a"), "first"))
    await until(lambda: engine.flusher.streams == 1)
    second = asyncio.create_task(process.start(line("a"), "second"))
    await until(lambda: engine.waiting.number == 1)
    page = render(metrics.families()).splitlines()
    assert "onward_streams_open 1" in page
    assert "onward_reservations_waiting 1" in page
    door.set()
    assert [(await run).status for run in (first, second)] == [RunStatus.COMPLETED] * 2
    page = render(metrics.families()).splitlines()
    assert "onward_streams_open 0" in page
    assert "onward_reservations_waiting 0" in page
    assert metrics.calls.calls.value("function", "", "ok") == 2


async def test_a_hold_is_counted_by_its_reason(world: World) -> None:
    metrics = Metrics()
    rule = ScriptRule(nth=1, reply=ScriptedReply(status=429, retry_after="3600"))
    process = await at(world, model(rule), **watching(metrics))
    await process.start(line("a"))
    await process.store.limits.change("run/limited", {"calls": 1})
    await process.start(line("a", "b"), "limited")
    assert metrics.calls.holds.value("rate_limit") == 1
    assert metrics.calls.holds.value("limit") == 1


async def test_a_flush_that_fails_is_counted_by_its_error(store: Store) -> None:
    metrics = Metrics()
    faulty = FaultyStore(store, Fault.REFUSE, at=1, counted={"messages.flush"})
    looked_at = watched_store(faulty, metrics, Health(0.0), ManualClock())
    batch = [Growth("run/none", "none", "none", 1, 1, [(ChunkKind.TEXT, "lost")])]
    with pytest.raises(StoreUnavailable):
        await looked_at.messages.flush(batch, 1)
    assert metrics.calls.flush_failures.value("StoreUnavailable") == 1
    assert metrics.store_errors.value("StoreUnavailable") == 1
    assert await looked_at.messages.flush(batch, 1) == [Flushed.REFUSED]
    assert metrics.calls.flush_failures.value(REFUSED) == 1
    assert metrics.calls.chunks.value() == 0


def test_text_that_was_put_off_is_not_counted_as_stored() -> None:
    metrics = CallMetrics()
    batch = [Growth("c", name, "run", 1, 1, [(ChunkKind.TEXT, "text")]) for name in ("m", "n")]
    metrics.flushed(batch, [Flushed.LATER, Flushed.STORED], 0.01)
    assert (metrics.chunks.value(), metrics.bytes.value(), metrics.flushes.count()) == (1, 4, 1)

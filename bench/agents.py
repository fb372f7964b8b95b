"""How soon an agent with a long conversation continues, and how much room the conversation takes."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import AsyncGenerator, Callable

import msgspec

from bench.figure import Figure
from bench.pipelines import custom_engine
from onward.agents.model import (
    Finished,
    FinishReason,
    ModelRequest,
    Streamed,
    TextDelta,
    TokenUsage,
    ToolCall,
)
from onward.agents.prices import read_prices
from onward.agents.step.conversation import read_thread
from onward.agents.step.handler import AgentHandler
from onward.clock import SystemClock, SystemDice
from onward.engine.control.requests import Resume, StartRequest
from onward.engine.engine import Engine
from onward.engine.stop import StopSwitch
from onward.machine.definition import AGENT
from onward.model.call import CallFinished
from onward.redact.redactor import NOTHING_SECRET
from onward.store.codec import unseal
from onward.store.port.store import Store
from onward.store.rows import pack
from onward.wiring import open_store

ROUNDS, FEW = 200, 2
ANSWER_CHARACTERS = 1_000
LATER_S_MAX, ROOM_MAX = 0.3, 1.5
NAME = "bench:small"
SOURCE = (
    "digraph long { start [shape=Mdiamond]; exit [shape=Msquare]; "
    'a [prompt="Tell me everything.", max_rounds=1000, files=off]; start -> a -> exit }'
)
_letters = random.Random(2)


class Rambling:
    """A model whose every answer is cut off. It asks its run to stop after so many, and notes when the first
    was asked for."""

    def __init__(self, answers: int) -> None:
        self.stop, self.first_s = StopSwitch(), 0.0
        self._left = answers

    def full_name(self, model: str = "", *, provider: str = "") -> str:
        """As the agent asks for it."""
        return NAME

    def takes_prefix(self, model: str) -> bool:
        """Its answers do not break off."""
        return False

    async def stream(
        self, request: ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[Streamed, None]:
        """As the port says."""
        self.first_s = self.first_s or time.perf_counter()
        self._left -= 1
        if self._left == 0:
            self.stop.request("drain")
        yield TextDelta("".join(_letters.choices("etaoin shrdlu", k=ANSWER_CHARACTERS)))
        yield Finished(
            usage=TokenUsage(input=10, output=250),
            finish_reason=FinishReason.LENGTH,
            model=NAME,
            request_id="r",
        )

    async def close(self) -> None:
        """As the port says."""


def rambling_engine(store: Store, model: Rambling) -> Engine:
    """An engine whose agents ask this model."""
    prices = read_prices({NAME: {"input": 1, "output": 2}})
    return custom_engine(store, {AGENT: AgentHandler(model, prices, SystemClock(), SystemDice())})


async def prepared(db: str, rounds: int) -> str:
    """A run whose agent has asked so often, and was stopped between two requests."""
    model, store = Rambling(rounds), await open_store(db)
    engine = rambling_engine(store, model)
    stopped = await engine.start(engine.sources.prepare(SOURCE, "<long>"), StartRequest(), model.stop)
    await engine.close()
    return stopped.run.id


async def first_call_s(db: str, run_id: str) -> float:
    """Seconds from opening the database to the next request of the agent; it then stops again."""
    began, model = time.perf_counter(), Rambling(1)
    store = await open_store(db)
    engine = rambling_engine(store, model)
    await engine.resume(run_id, Resume(original=True), model.stop)
    await engine.close()
    return model.first_s - began


async def thread_room(db: str, run_id: str) -> float:
    """The stored bytes of an agent's conversation, for each byte of its text."""
    store = await open_store(db)
    engine = rambling_engine(store, Rambling(1))
    events = [unseal(record) for record in await engine.journal.read(run_id)]
    head = [event.thread for event in events if isinstance(event, CallFinished)][-1]
    stored = 0

    async def find(name: str) -> bytes | None:
        nonlocal stored
        content = await store.blobs.find(name)
        stored += len(name) + len(pack(content or b"")[1])
        return content

    thread = await read_thread(find, head, NOTHING_SECRET)
    parts = [part for message in thread.messages for part in message.parts]
    text = sum(len(msgspec.json.encode(part) if isinstance(part, ToolCall) else part.text) for part in parts)
    await engine.close()
    return stored / text


async def agent_rounds(name: str, fresh: Callable[[], str], rounds: int) -> list[Figure]:
    """An agent of many rounds against one of few, in turns."""
    db = fresh()
    long, short = await prepared(db, ROUNDS), await prepared(db, FEW)
    room = await thread_room(db, long)
    found = [(await first_call_s(db, long), await first_call_s(db, short)) for _ in range(2 * rounds)]
    later_s = statistics.median(long - short for long, short in found)
    whole_s, startup_s = (statistics.median(column) for column in zip(*found, strict=True))
    return [
        Figure(
            f"{name}: an agent of {ROUNDS} rounds resumes to its next request",
            f"{later_s:.2f} s beyond start-up ({whole_s:.2f} s of {startup_s:.2f} s)",
            f"< {LATER_S_MAX} s",
            later_s < LATER_S_MAX,
        ),
        Figure(
            f"{name}: its conversation",
            f"{room:.2f} x the text ({ANSWER_CHARACTERS:,} characters an answer)",
            f"<= {ROOM_MAX} x",
            room <= ROOM_MAX,
        ),
    ]

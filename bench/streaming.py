"""Answers on their way from a socket to the database: twenty agents at once in one process.

The endpoint is a process of its own. Beside it, in the same round: our client alone, our sink alone, the
client of a provider's SDK if one is installed, and one commit for each token by the bare driver.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import apsw
import psycopg

from bench.figure import Figure
from bench.messages import ROOM_MAX, STREAMS, TOKENS, TOKENS_PER_S, sink_rate, stored_bytes
from bench.models import REQUEST, endpoint, models_at
from bench.pipelines import custom_engine
from onward.agents.model import ModelRequest, user
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.clock import SystemClock, SystemDice
from onward.engine.control.requests import StartRequest
from onward.machine.definition import AGENT
from onward.model.run import RunStatus
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from onward.wiring import open_store

EACH = 3_000
"""Tokens in an answer."""
COMMITS = 600
TABLE = "CREATE TABLE token (stream INT, text TEXT)"
INSERT = "INSERT INTO token VALUES ({0}, {0})"
SDK = "openai"
_letters = random.Random(3)


@dataclass
class Rates:
    """Tokens per second of each way, and the room that the durable one takes, round by round."""

    durable: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)
    sink: list[float] = field(default_factory=list)
    sdk: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)
    said: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)


def script() -> ModelScript:
    """Every stream has an answer of its own: what is stored twice would be stored once."""
    rules = [
        ScriptRule(contains=_asked(number), reply=ScriptedReply(text=_text(), chunk=len(TOKENS[0])))
        for number in range(STREAMS)
    ]
    return ModelScript(rules=tuple(rules))


def _asked(number: int) -> str:
    return f"story {number:02d}."


def _text() -> str:
    return "".join(_letters.choices(TOKENS, k=EACH))


async def durable(db: str, base_url: str) -> tuple[float, float, float]:
    """Twenty runs of an agent: tokens per second until all have ended, and the bytes that are stored for each
    of text: in messages, and in all."""
    store, models = await open_store(db), models_at(base_url)
    agent = AgentHandler(models, read_prices({}), SystemClock(), SystemDice())
    engine = custom_engine(store, {AGENT: agent})
    sources = [
        f'digraph s {{ start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt="{_asked(number)}", '
        "max_tokens=100000, files=off]; start -> a -> exit }"
        for number in range(STREAMS)
    ]
    pipelines = [engine.sources.prepare(source, "<stream>") for source in sources]
    await store.runs.count()
    before, began = stored_bytes(db), time.perf_counter()
    ended = await asyncio.gather(*(engine.start(pipeline, StartRequest()) for pipeline in pipelines))
    rate = STREAMS * EACH / (time.perf_counter() - began)
    assert {one.run.status for one in ended} == {RunStatus.COMPLETED}
    text = STREAMS * EACH * len(TOKENS[0])
    said, all_ = ((after - then) / text for after, then in zip(stored_bytes(db), before, strict=True))
    await models.close()
    await engine.close()
    return rate, said, all_


async def client_alone(base_url: str) -> float:
    """The same answers through our client, and nothing stored."""
    models = models_at(base_url)

    async def one(number: int) -> None:
        request = ModelRequest(model=REQUEST.model, messages=(user(_asked(number)),))
        async for _ in models.stream(request):
            pass

    rate = await _rate(one)
    await models.close()
    return rate


async def sdk_alone(base_url: str) -> float:
    """The same answers through the client of the SDK."""
    sdk = importlib.import_module(SDK)
    client = sdk.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)

    async def one(number: int) -> None:
        messages = [{"role": "user", "content": _asked(number)}]
        async for _ in await client.chat.completions.create(model="small", messages=messages, stream=True):
            pass

    rate = await _rate(one)
    await client.close()
    return rate


async def _rate(one: Callable[[int], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(STREAMS)))
    return STREAMS * EACH / (time.perf_counter() - began)


async def commit_each(db: str) -> float:
    """Tokens per second if each is a commit of its own; on PostgreSQL each stream has a connection."""
    if db.startswith("postgres"):
        return await _postgres_commits(db)
    connection = apsw.Connection(f"{db}-tokens")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    began = time.perf_counter()
    for number in range(COMMITS):
        connection.execute(INSERT.format("?"), (number % STREAMS, TOKENS[0]))
    rate = COMMITS / (time.perf_counter() - began)
    connection.close()
    return rate


async def _postgres_commits(db: str) -> float:
    connections = [
        await psycopg.AsyncConnection.connect(db, autocommit=True, prepare_threshold=0)
        for _ in range(STREAMS)
    ]
    await connections[0].execute(TABLE)

    async def one(number: int) -> None:
        for _ in range(COMMITS // STREAMS):
            await connections[number].execute(INSERT.format("%s").encode(), (number, TOKENS[0]))

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(STREAMS)))
    rate = COMMITS / (time.perf_counter() - began)
    for connection in connections:
        await connection.close()
    return rate


async def durable_streams(name: str, fresh: Callable[[], str], directory: str, rounds: int) -> list[Figure]:
    """Each way in turn, round by round."""
    rates, has_sdk = Rates(), importlib.util.find_spec(SDK) is not None
    with endpoint(directory, script()) as base_url:
        await client_alone(base_url)  # imports the HTTP client
        for _ in range(rounds):
            rate, said, all_ = await durable(fresh(), base_url)
            rates.durable.append(rate)
            rates.said.append(said)
            rates.all.append(all_)
            rates.client.append(await client_alone(base_url))
            rates.sink.append(await sink_rate(fresh()))
            if has_sdk:
                rates.sdk.append(await sdk_alone(base_url))
            rates.commits.append(await commit_each(fresh()))
    rate, client, sink, commits, said, all_ = (
        statistics.median(found)
        for found in (rates.durable, rates.client, rates.sink, rates.commits, rates.said, rates.all)
    )
    sdk = f"{statistics.median(rates.sdk):,.0f}" if has_sdk else "not installed"
    return [
        Figure(
            f"{name}: {STREAMS} agents, from the socket to the database",
            f"{rate:,.0f} tokens/s, {said:.2f} x the text in messages, {all_:.2f} x in all",
            f">= {TOKENS_PER_S:,}, <= {ROOM_MAX} x",
            rate >= TOKENS_PER_S and said <= ROOM_MAX,
        ),
        Figure(
            f"{name}: the same, part by part",
            f"client {client:,.0f}, sink {sink:,.0f}, SDK {sdk}, a commit each {commits:,.0f} tokens/s",
            "to compare with",
            True,
        ),
    ]

"""How fast answers come through our client of models, beside a bare socket; the endpoint is a process."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec

from bench.figure import Figure
from onward.agents.model import Finished, ModelRequest, user
from onward.agents.models import Models
from onward.agents.providers import Keys, read_providers
from onward.clock import SystemClock
from onward.process import SystemSpawn
from onward.testing.script import ModelScript, ScriptedReply

TOKENS = 20_000
AT_ONCE = (1, 20)
GOAL_US = 20.0
"""Of processor time for a token: 20 agents with 100 tokens/s each then take 4 % of a core."""
REQUEST = ModelRequest(model="bench:small", messages=(user("Write."),))
END = b"0\r\n\r\n"


@contextmanager
def endpoint(directory: str, script: ModelScript) -> Iterator[str]:
    """An endpoint in a process of its own, which plays this script."""
    path = os.path.join(directory, "script.json")
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(script))
    command = [sys.executable, "-m", "onward.testing.model_endpoint", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def models_at(base_url: str) -> Models:
    """The models of the endpoint."""
    keys = Keys(variables=dict, spawn=SystemSpawn())
    providers = read_providers({"bench": {"base_url": base_url}})
    return Models(providers, keys=keys, clock=SystemClock(), default=REQUEST.model)


async def through_client(base_url: str) -> None:
    """One answer through our client."""
    models = models_at(base_url)
    output = 0
    async for piece in models.stream(REQUEST):
        if isinstance(piece, Finished):
            output = piece.usage.output
    assert output == TOKENS
    await models.close()


async def through_socket(base_url: str) -> None:
    """The bytes of one answer, without looking at them."""
    address = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = b'{"model":"small","messages":[{"content":"Write."}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    writer.write(head + body)
    last = b""
    while not last.endswith(END):
        last = last[-len(END) :] + await reader.read(65536)
    writer.close()


async def measured(one: Callable[[str], Awaitable[None]], base_url: str, number: int) -> tuple[float, float]:
    """Tokens per second, and microseconds of processor time for each."""
    began, worked = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one(base_url) for _ in range(number)))
    tokens = number * TOKENS
    return tokens / (time.perf_counter() - began), (time.process_time() - worked) * 1_000_000 / tokens


async def model_streams(directory: str, rounds: int) -> list[Figure]:
    """One stream and twenty, in turns with a bare socket."""
    figures = []
    with endpoint(directory, ModelScript(default=ScriptedReply(text="tok " * TOKENS))) as base_url:
        await through_client(base_url)  # imports the HTTP client
        for number in AT_ONCE:
            came = [
                (
                    await measured(through_socket, base_url, number),
                    await measured(through_client, base_url, number),
                )
                for _ in range(rounds)
            ]
            ratio = statistics.median(ours[0] / bare[0] for bare, ours in came)
            rate = statistics.median(ours[0] for _, ours in came)
            work_us = statistics.median(ours[1] for _, ours in came)
            figures.append(
                Figure(
                    f"models: {number} at a time, answers of {TOKENS:,} tokens",
                    f"{rate:,.0f} tokens/s, {ratio:.2f} of a bare socket, {work_us:.1f} µs each",
                    f"<= {GOAL_US:g} µs",
                    work_us <= GOAL_US,
                )
            )
    return figures

"""A client of a scripted endpoint, and requests for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from onward.agents.model import Failure, Model, ModelFailed, ModelRequest, Streamed, user
from onward.agents.models import Models
from onward.agents.providers import Keys, read_providers
from onward.clock import Clock, SystemClock
from onward.listener import listening
from onward.process import SystemSpawn
from onward.testing.model_endpoint import ModelEndpoint, serving_model
from onward.testing.script import ModelScript, ScriptedReply

KEY = "canary/0123456789abcdef+="
NAME = "acme:small"


def request(text: str = "Hello", **more: Any) -> ModelRequest:
    """A request to the model of the endpoint."""
    return ModelRequest(**({"model": NAME, "messages": (user(text),)} | more))


def always(**reply: Any) -> ModelScript:
    """A script with one reply."""
    return ModelScript(default=ScriptedReply(**reply))


def models_at(base_url: str, *, clock: Clock | None = None, **settings: Any) -> Models:
    """The models of a provider called acme."""
    tables = {"acme": {"base_url": base_url, "key": "env:ACME_KEY", **settings}}
    keys = Keys(variables=lambda: {"ACME_KEY": KEY}, spawn=SystemSpawn())
    return Models(read_providers(tables), keys=keys, clock=clock or SystemClock())


@asynccontextmanager
async def at_endpoint(
    script: ModelScript | None = None, *, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[tuple[Models, ModelEndpoint]]:
    """A client and the endpoint that it asks."""
    async with serving_model(script) as endpoint:
        models = models_at(endpoint.base_url, clock=clock, **settings)
        try:
            yield models, endpoint
        finally:
            await models.close()


async def pieces_of(
    model: Model, asked: ModelRequest | None = None, *, key: str | None = None
) -> tuple[list[Streamed], Failure | None]:
    """Everything that came, and how it failed if it did."""
    came: list[Streamed] = []
    try:
        async with aclosing(model.stream(asked or request(), idempotency_key=key)) as pieces:
            async for piece in pieces:
                came.append(piece)
    except ModelFailed as failed:
        return came, failed.failure
    return came, None


async def failure_of(model: Model, asked: ModelRequest | None = None) -> Failure:
    """How a request fails that must fail."""
    _, failure = await pieces_of(model, asked)
    assert failure is not None
    return failure


@asynccontextmanager
async def raw_server(answer: Callable[[bytes], bytes]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that sends whatever bytes the test wants; gives its address and the heads that came."""
    heads: list[bytes] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer(heads[-1]))
        await writer.drain()

    async with listening(connected) as port:
        yield f"http://127.0.0.1:{port}/v1", heads


def response(
    body: bytes, *, status: str = "200 OK", kind: str = "text/event-stream", more: str = ""
) -> bytes:
    """A response whose end is the end of the connection."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Connection: close\r\n\r\n".encode() + body


def events(*data: str) -> bytes:
    """Server-sent events."""
    return b"".join(f"data: {one}\n\n".encode() for one in data)

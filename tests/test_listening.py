"""A server: whatever moment it closes at, and however, no connection is left open."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import Awaitable, Callable

import pytest

from onward.listener import listening

Run = Callable[[], Awaitable[socket.socket]]


async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"x")
    await reader.read()


async def break_down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("turns", range(8))
def test_a_connection_is_closed_at_whatever_turn_of_the_loop_its_server_closes(turns: int) -> None:
    """asyncio itself loses one that is accepted in the turn before."""

    async def close_soon() -> socket.socket:
        async with listening(say) as port:
            client = socket.create_connection(("127.0.0.1", port))
            for _ in range(turns):
                await asyncio.sleep(0)
        return client

    assert_closed(close_soon)


@pytest.mark.parametrize("turns", range(1, 16, 2))
def test_a_connection_is_closed_when_its_server_is_cancelled_while_it_closes(turns: int) -> None:
    clients: list[socket.socket] = []
    closing = asyncio.Event()

    async def serve() -> None:
        async with listening(say) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read(1) == b"x"
            clients.append(socket.create_connection(("127.0.0.1", port)))
            writer.close()
            closing.set()

    async def cancel() -> socket.socket:
        serving = asyncio.create_task(serve())
        await closing.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.wait([serving])
        assert len(asyncio.all_tasks()) == 1
        return clients[0]

    assert_closed(cancel)


def assert_closed(run: Run) -> None:
    """The client that this returns is disconnected, and nothing is left to the garbage collector."""

    async def main() -> socket.socket:
        return await run()

    gc.collect()
    with warnings.catch_warnings(record=True) as leaks:
        warnings.simplefilter("always", ResourceWarning)
        with asyncio.run(main()) as client:
            gc.collect()
            client.settimeout(10)
            assert was_closed(client)
    assert not [str(leak.message) for leak in leaks]


def was_closed(client: socket.socket) -> bool:
    try:
        return client.recv(2) in (b"", b"x") and client.recv(1) == b""
    except ConnectionError:
        return True


async def test_what_breaks_inside_a_server_is_raised_when_it_closes() -> None:
    async def served() -> None:
        async with listening(break_down) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()

    with pytest.raises(ZeroDivisionError):
        await served()


async def test_a_connection_is_broken_when_its_time_is_over() -> None:
    async with listening(say, limit_s=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b"x"
        writer.close()

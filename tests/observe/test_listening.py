"""A server: whatever moment it closes at, no connection is left open."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from onward.listening import listening


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

    gc.collect()
    with warnings.catch_warnings(record=True) as leaks:
        warnings.simplefilter("always", ResourceWarning)
        with asyncio.run(close_soon()) as client:
            gc.collect()
            client.settimeout(10)
            assert was_closed(client)
    assert not leaks


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

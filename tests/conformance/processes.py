"""Fixtures that stand for processes: each is a separate store on the same database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from onward.store.port.store import Store

Connect = Callable[[], Awaitable[Store]]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Onward is written for asyncio."""
    return "asyncio"


@pytest.fixture
async def store(connect: Connect) -> AsyncIterator[Store]:
    """A process at the database."""
    connected = await connect()
    yield connected
    await connected.close()


@pytest.fixture
async def other(connect: Connect) -> AsyncIterator[Store]:
    """Another process at the same database."""
    connected = await connect()
    yield connected
    await connected.close()

"""A store that reaches its PostgreSQL server through a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from onward.store.postgres.adapter import PostgresStore
from tests.store.proxy import Proxy


@pytest.fixture
async def proxy(postgres_ready_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_ready_url) as proxy:
        yield proxy


@pytest.fixture
async def proxied_store(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(proxy.url)
    yield store
    await store.close()

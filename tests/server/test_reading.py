"""Where what only looks is read: in a thread of its own, or at once where that takes no time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from onward.model.settings import DEFAULT_CHATS
from onward.operations.local.operations import LocalOperations
from onward.operations.protocol import Operations
from onward.server.reading import FAR_TOO_LONG, GLANCE_S_MAX, GLANCES_LONG_MAX, ThreadReader
from onward.store.reader import Reader
from onward.testing.clock import ManualClock
from onward.wiring import open_reader, open_store
from tests.world import in_memory


@pytest.mark.parametrize("is_here", [True, False])
async def test_a_glance_is_taken_where_it_is_asked_until_it_takes_long(tmp_path: Path, is_here: bool) -> None:
    """One long glance may be another process's fault; several of one run are the run's own size."""
    clock = ManualClock(autojump=False)
    async with in_memory() as world:
        process = await world.process(clock=clock)
        operations = LocalOperations(process.engine, clock, DEFAULT_CHATS)
        path = str(tmp_path / "onward.db")
        await (await open_store(path)).close()
        own: Reader[Operations] = await open_reader(path, lambda store: operations)
        reader = ThreadReader(own, here=operations if is_here else None, clock=clock)
        here = threading.get_ident()

        async def where(took_s: float, run: str = "run") -> int:
            async def look(_: Operations) -> int:
                if threading.get_ident() == here:
                    clock.advance(took_s)
                return threading.get_ident()

            return await reader.glance(run, look)

        long_s = 2 * GLANCE_S_MAX
        for took_s in (0.0, long_s, long_s, 0.0, *[long_s] * GLANCES_LONG_MAX):
            assert (await where(took_s) == here) == is_here
        assert await where(0.0) != here
        assert (await where(0.0, "other") == here) == is_here
        await where(2 * FAR_TOO_LONG * GLANCE_S_MAX, "huge")
        assert await where(0.0, "huge") != here
        await reader.close()

"""Numbers that Python code gives, and that no database could hold: refused before anything is written."""

from __future__ import annotations

import pytest

from onward.engine.control.requests import ForkRequest, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput
from onward.store.port.runs import RunQuery
from onward.worker import Worker
from tests.world import World, line

pytestmark = pytest.mark.anyio
ODD = (10**20, 2**63, -(2**63) - 1, 2**31, 1.5, "1")


async def test_an_odd_priority_makes_no_run(world: World) -> None:
    process = await world.process()
    for priority in ODD:
        start = StartRequest(run_id="run", priority=priority)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match=r"priority is .*, which is not a whole number from"):
            await process.engine.submit(process.pipeline(line("a")), start)
    assert await process.store.runs.list(RunQuery()) == []


async def test_an_odd_checkpoint_makes_no_fork(world: World) -> None:
    process = await world.process()
    await process.engine.start(process.pipeline(line("a")), StartRequest(run_id="run"))
    for seq in (*ODD, -1, 0):
        with pytest.raises(InvalidInput, match=r"is not a checkpoint|is not a whole number"):
            await process.engine.fork("run", ForkRequest(seq))  # type: ignore[arg-type]
    assert len(await process.store.runs.list(RunQuery())) == 1


async def test_an_odd_concurrency_is_refused(world: World) -> None:
    process = await world.process()
    for concurrency in (0, -1, 10**20, 1.5):
        with pytest.raises(InvalidInput, match="concurrency is"):
            Worker(process.engine, process.clock, StopSwitch(), concurrency=concurrency)  # type: ignore[arg-type]

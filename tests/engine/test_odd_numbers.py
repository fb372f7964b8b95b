"""Numbers that Python code gives, and that no database could hold: refused before anything is written."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from onward.engine.control.requests import ForkRequest, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput
from onward.model.run import RunStatus
from onward.store.port.log import RunLog
from onward.store.port.runs import RunQuery
from onward.worker import Worker
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.limits import working
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


class Overflowing(Around[RunLog]):
    """A log whose database cannot add up the books of one run, and does not say so in our words."""

    async def control(self, *values: Any, **named: Any) -> Any:
        if "bad" in (*values, *named.values()):
            raise OverflowError("int too big to convert")
        return await self.part.control(*values, **named)


async def test_a_run_that_cannot_be_recovered_at_all_does_not_keep_the_sweep_from_others(
    world: World,
) -> None:
    first = await world.process()
    for name in ("a", "bad", "c"):
        await working(first.store, name)
    await first.die()
    second = await world.process(wrap=partial(FaultyStore, log=Overflowing))
    for _ in range(2):
        swept = await second.engine.recover()
        assert swept.broken == (("bad", "int too big to convert"),)
    states = {name: (await second.load(name)).run.status for name in ("a", "bad", "c")}
    assert states == {"a": RunStatus.INTERRUPTED, "bad": RunStatus.RUNNING, "c": RunStatus.INTERRUPTED}

"""What nobody needs any more goes by itself, while the server serves."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from onward.server.tidying import AT_ONCE, DAY_US, EVERY_S, keep_tidy, sweep
from onward.store.port.principals import AuditRow
from tests.conformance.audit import ROW
from tests.conformance.principals import opened, token
from tests.server.door import Door, a_door


async def audited(door: Door, at_us: int, count: int = 1) -> None:
    for _ in range(count):
        await door.context.store.audit.begin(replace(ROW, at_us=at_us))


async def rows(door: Door) -> list[AuditRow]:
    return list(await door.context.store.audit.read(limit=10_000))


async def test_a_session_is_forgotten_a_day_after_its_end() -> None:
    async with a_door() as door:
        store, now_us = door.context.store, door.context.clock.now_us()
        await store.principals.put(token())
        for id, ended_us in (("old", now_us - DAY_US), ("new", now_us - DAY_US + 1)):
            await store.principals.put(opened("session", id, expires_at_us=ended_us))
        assert not await sweep(door.context)
        assert await store.principals.find("old") is None
        assert await store.principals.find("new") is not None


async def test_the_audit_is_kept_for_as_long_as_the_operator_says() -> None:
    for days, left in ((30, 1), (31, 2), (0, 2)):
        async with a_door(audit_days=days) as door:
            now_us = door.context.clock.now_us()
            await audited(door, now_us - 30 * DAY_US)
            await audited(door, now_us)
            await sweep(door.context)
            assert len(await rows(door)) == left


async def test_a_sweep_is_short_and_says_whether_there_is_more() -> None:
    async with a_door(audit_days=1) as door:
        await audited(door, 0, AT_ONCE + 1)
        assert await sweep(door.context)
        assert len(await rows(door)) == 1
        assert not await sweep(door.context)
        assert await rows(door) == []


async def test_a_server_sweeps_until_it_drains() -> None:
    async with a_door(audit_days=1) as door:
        await audited(door, 0)
        sweeping = asyncio.create_task(keep_tidy(door.context))
        while await rows(door):  # noqa: ASYNC110 - another task removes them
            await asyncio.sleep(0)
        await audited(door, 0)
        door.process.clock.advance(EVERY_S)
        while await rows(door):  # noqa: ASYNC110 - another task removes them
            await asyncio.sleep(0)
        door.context.life.draining.set()
        await sweeping

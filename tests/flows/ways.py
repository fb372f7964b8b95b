"""One flow in three ways: live, broken off at each write and resumed, and forked before each of its calls.

A rule of flows applies whichever way a run came to a place. What was executed is counted outside, under the
name and the arguments of a step, so a flow of these tests calls no step twice with the same arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from onward.engine.control.requests import ForkRequest
from onward.errors import Refused, RunNotFound
from onward.flows.define import Bound
from onward.model.call import CallFinished, CallKind, CallStatus
from onward.model.run import Run
from tests.chance import places
from tests.conformance.faults import Died, Fault
from tests.flows.living import Outside, called, live, result, serving
from tests.world import Process, World

LIVE, RESUMED, FORKED = WAYS = ("live", "resumed", "forked")
STRIDE = {"memory": 1, "sqlite": 3, "postgres": 5}
"""Of the writes at which a process dies, every so many: in memory at all."""


class Executed(Outside):
    """What steps executed, by their names and arguments."""

    def note(self, name: str, *arguments: Any) -> int:
        """Note that a step was executed; how often by now."""
        return self.do(f"{name}{msgspec.json.encode(arguments).decode()}")


async def ended(process: Process, run_id: str, *statuses: CallStatus) -> list[str]:
    """The steps that ended so, or in any way, as the log has them: by their names and arguments."""
    return [
        f"{event.name}{event.about}"
        for event in await process.events(run_id)
        if isinstance(event, CallFinished)
        and event.type == CallKind.STEP.value
        and event.status in (statuses or CallStatus)
    ]


async def in_way(
    way: str,
    world: World,
    bound: Bound[Any],
    executed: Executed,
    *,
    gives: Any,
    settled: Mapping[str, Any] | None = None,
    keys: Collection[str] = (),
) -> None:
    """Bring runs of a flow to their ends in this way: each gives this, with these keys, and repeats nothing.

    `settled` is what a person says that calls in doubt answered.
    """
    process = await serving(world, bound.flow)
    await judged(process, await live(process, bound, "live"), gives, keys)
    if way == RESUMED:
        for fault in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
            for at in places(STRIDE[world.kind]):
                if not await broken_off(world, bound, executed, fault, at, gives, keys, settled or {}):
                    break
    if way == FORKED:
        for number, key in enumerate(dict.fromkeys(await called(process, "live"))):
            await forked(process, bound, executed, "live", key, f"fork-{number}", gives, keys, settled or {})


async def judged(process: Process, run: Run, gives: Any, keys: Collection[str] = ()) -> None:
    """Fail unless a run gave this with these keys, has a sound log, and no step was answered twice."""
    assert result(run) == gives
    assert await process.is_sound(run.id)
    done = await ended(process, run.id, CallStatus.OK)
    assert sorted(done) == sorted(set(done)), "a step was answered twice"
    if keys:
        assert set(await called(process, run.id)) == set(keys)


async def broken_off(
    world: World,
    bound: Bound[Any],
    executed: Executed,
    fault: Fault,
    at: int,
    gives: Any,
    keys: Collection[str],
    settled: Mapping[str, Any],
) -> bool:
    """Let the process die at a call to its store, and another go on; False if there are fewer calls."""
    executed.done.clear()
    run_id = f"{fault.name.lower().replace('_', '-')}-{at}"
    dying = await serving(world, bound.flow)
    dying.store.fail(fault, within=at)
    try:
        await live(dying, bound, run_id)
    except Died:
        await dying.die()
    else:
        return False
    process = await serving(world, bound.flow)
    kept: list[str] = []
    with contextlib.suppress(RunNotFound):
        kept = await ended(process, run_id, CallStatus.OK)
    await judged(process, await to_its_end(process, bound, run_id, settled), gives, keys)
    again = [step for step in kept if executed.done[step] != 1]
    assert not again, f"{again} ran again after a death at call {at}"
    return True


async def to_its_end(process: Process, bound: Bound[Any], run_id: str, settled: Mapping[str, Any]) -> Run:
    """Bring a run to its end, whatever is in doubt in it."""
    try:
        return await live(process, bound, run_id)
    except Refused as refused:
        said = {key: settled[key] for key in refused.details["calls"]}
    await process.resume(run_id, action="continue", answers=said)
    return await live(process, bound, run_id)


async def forked(
    process: Process,
    bound: Bound[Any],
    executed: Executed,
    of: str,
    key: str,
    new_id: str,
    gives: Any,
    keys: Collection[str],
    settled: Mapping[str, Any],
) -> None:
    """Fork a run before a call: what came before is kept, and all the rest is done again."""
    executed.done.clear()
    await process.engine.fork(of, ForkRequest(from_step=key, new_id=new_id))
    kept, answered = set(await ended(process, new_id)), set(await ended(process, new_id, CallStatus.OK))
    await judged(process, await to_its_end(process, bound, new_id, settled), gives, keys)
    assert not answered & executed.done.keys(), f"a fork before {key} repeated what it has"
    assert set(await ended(process, new_id)) - kept <= executed.done.keys(), key
    assert set(executed.done.values()) <= {1}, key

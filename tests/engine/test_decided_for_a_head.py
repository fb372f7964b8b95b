"""A request that was made for one state of a run is not applied to another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from onward.engine.control.requests import Resume
from onward.engine.log import Folded, RequestTerms
from onward.engine.stop import StopSwitch
from onward.errors import Refused
from tests.test_pause import GATED
from tests.world import Process, World

Make = Callable[[Process, RequestTerms], Awaitable[Folded]]
REQUESTS: dict[str, Make] = {
    "pause": lambda process, terms: process.engine.pause("run", terms=terms),
    "cancel": lambda process, terms: process.engine.cancel("run", terms=terms),
    "steer": lambda process, terms: process.engine.steer("run", "be brief", terms=terms),
    "answer": lambda process, terms: process.engine.answer("run", "yes", by="ann", terms=terms),
    "abort": lambda process, terms: process.engine.resume("run", Resume(action="abort", terms=terms)),
}


@pytest.mark.parametrize("name", list(REQUESTS))
async def test_a_request_for_an_older_head_is_refused_with_the_head_now(world: World, name: str) -> None:
    process, make = await world.process(), REQUESTS[name]
    await process.start(GATED)
    seen = (await process.load()).position.seq
    await process.engine.steer("run", "be quick")  # meanwhile
    before = await process.log()
    with pytest.raises(Refused, match=f"made for event {seen}, and its log ends at event {seen + 1}") as no:
        await make(process, RequestTerms(if_head=seen))
    assert (no.value.code, no.value.details["head"]) == ("stale_head", seen + 1)
    assert await process.log() == before
    await make(process, RequestTerms(if_head=seen + 1))
    assert await process.log() != before


async def test_a_dismissal_for_an_older_head_is_refused(world: World) -> None:
    """Apart from the others, because it is for runs that have stopped."""
    process, stop = await world.process(), StopSwitch()
    stop.request("signal")
    await process.start(GATED, stop=stop)
    head = (await process.load()).position.seq
    with pytest.raises(Refused) as refused:
        await process.engine.dismiss("run", terms=RequestTerms(if_head=head - 1))
    assert (refused.value.code, refused.value.details["head"]) == ("stale_head", head)
    run = (await process.engine.dismiss("run", terms=RequestTerms(if_head=head))).run
    assert run.is_dismissed


async def test_of_two_requests_for_one_head_exactly_one_is_made(world: World) -> None:
    """It is decided under the run's lock: both have seen the same state, and the second sees another."""
    processes = [await world.process() for _ in range(2)]
    await processes[0].start(GATED)
    head = (await processes[0].load()).position.seq
    terms = RequestTerms(if_head=head)
    answers = await asyncio.gather(
        *(process.engine.steer("run", "be brief", terms=terms) for process in processes),
        return_exceptions=True,
    )
    (refused,) = [answer for answer in answers if isinstance(answer, Refused)]
    assert (refused.code, refused.details["head"]) == ("stale_head", head + 1)
    assert (await processes[0].load()).run.steering == ("be brief",)


async def test_a_repeated_request_is_answered_whatever_the_head_is_now(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    terms = RequestTerms("key-1", b"pause", if_head=(await process.load()).position.seq)
    await process.engine.pause("run", terms=terms)
    assert (await process.engine.pause("run", terms=terms)).is_repeat

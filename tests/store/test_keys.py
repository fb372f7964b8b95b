"""A request under a key: once, whoever sends it again; and for one request only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from onward.engine.control.requests import ForkRequest, Resume, StartRequest
from onward.engine.log import Folded, RequestTerms
from onward.engine.stop import StopSwitch
from onward.errors import Refused
from onward.store.codec import content_hash
from tests.world import Process, World, line

Make = Callable[[Process, RequestTerms], Awaitable[Folded]]


async def paused(world: World) -> Process:
    """A process at a run that was paused before its first step."""
    process, stop = await world.process(), StopSwitch()
    stop.request("signal")
    await process.start(line("a", "b"), stop=stop)
    return process


REQUESTS: dict[str, Make] = {
    "cancel": lambda process, terms: process.engine.cancel("run", terms=terms),
    "dismiss": lambda process, terms: process.engine.dismiss("run", terms=terms),
    "steer": lambda process, terms: process.engine.steer("run", "be brief", terms=terms),
    "resume": lambda process, terms: process.engine.resume("run", Resume(terms=terms)),
    "queue": lambda process, terms: process.engine.resume("run", Resume(run=False, terms=terms)),
    "fork": lambda process, terms: process.engine.fork("run", ForkRequest(1, new_id="fork", terms=terms)),
    "submit": lambda process, terms: process.engine.submit(
        process.pipeline(line("a")), StartRequest(run_id="new", terms=terms)
    ),
}


@pytest.mark.parametrize("name", list(REQUESTS))
async def test_a_key_answers_its_own_request_again_and_no_other(world: World, name: str) -> None:
    """The same key with the same body is the first answer; with another body it is refused."""
    process, make = await paused(world), REQUESTS[name]
    first = await make(process, RequestTerms("key-1", b"one"))
    logs = [await process.log(run_id) for run_id in ("run", first.run.id)]
    process.clock.advance(1)
    again = await make(process, RequestTerms("key-1", b"one"))
    assert (again.is_repeat, again.run) == (True, first.run)
    with pytest.raises(Refused, match="'key-1' was used for another request to run") as refused:
        await make(process, RequestTerms("key-1", b"two"))
    assert refused.value.code == "key_reused"
    assert [await process.log(run_id) for run_id in ("run", first.run.id)] == logs
    assert await process.is_sound(first.run.id)


async def test_what_was_asked_under_a_key_is_not_stored_a_second_time(world: World) -> None:
    """It may be long, or secret: a hash tells whether it is the same."""
    process, asked = await paused(world), b"x" * 10_000
    await process.engine.cancel("run", terms=RequestTerms("key-1", asked))
    (name,) = (await process.log())[-1].refs
    assert await process.store.blobs.find(name.removeprefix("~")) == content_hash(asked).encode()

"""Lists through the operations: filters, pages, and what is refused before anything is read."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import InvalidInput
from onward.operations import requests
from onward.operations.requests import ListCheckpoints, ListGates, ListMessages, ListRuns, SubmitRun
from tests.conformance.drafts import created
from tests.conformance.messages import answered, appended, call_of, speaking
from tests.operations.test_requests import of
from tests.test_pause import GATED
from tests.world import World, line

LIMITED: dict[str, dict[str, Any]] = {
    "ListRuns": {},
    "ListGates": {},
    "ListCalls": {"run": "run"},
    "ListMessages": {"of": "run"},
    "ListChats": {},
    "ListPipelines": {},
    "GetPipeline": {"name": "x"},
    "ListLimits": {},
    "GetUsage": {},
    "ListNotifications": {},
}
PLACED: dict[str, dict[str, Any]] = {
    "ReadEvents": {"run": "run"},
    "ReadMessages": {"of": "run"},
    "ListCalls": {"run": "run"},
    "ListMessages": {"of": "run"},
    "ListCheckpoints": {"run": "run"},
}


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("limit", [0, -1, 2**31, 2**70])
def test_no_list_has_no_place_for_anything(name: str, limit: int) -> None:
    with pytest.raises(InvalidInput, match=f"^limit is {limit}, which is not a whole number from 1 to"):
        getattr(requests, name)(**LIMITED[name], limit=limit)


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("after", [-1, -(2**70), 2**63, True])
def test_a_place_that_cannot_be_is_refused_where_it_arrives(name: str, after: int) -> None:
    with pytest.raises(InvalidInput, match=r"^after is .*, which is not a whole number from 0 to"):
        getattr(requests, name)(**PLACED[name], after=after)


@pytest.mark.parametrize("since", ["", "yesterday", "2026-11-18", "2026-11-18T10:00:00", "1700000000"])
def test_since_is_an_instant_with_its_zone(since: str) -> None:
    with pytest.raises(InvalidInput, match=r"^since is "):
        ListRuns(since=since)


async def test_runs_are_listed_by_chat_and_since_an_instant(world: World) -> None:
    process = await world.process()
    at = of(process)
    first = await at.start.submit_run(SubmitRun(source=line("a"), run_id="first", chat="talk"))
    process.clock.advance(60)
    second = await at.start.submit_run(SubmitRun(source=line("a"), run_id="second"))

    async def listed(**filters: Any) -> list[str]:
        return [run["id"] for run in (await at.lists.list_runs(ListRuns(**filters)))["runs"]]

    assert await listed(chat="talk") == ["first"]
    assert await listed(since=second["run"]["created_at"]) == ["second"]
    assert await listed(since=first["run"]["created_at"]) == ["second", "first"]


async def test_what_a_person_types_finds_up_to_ten_candidates(world: World) -> None:
    process = await world.process()
    for number in range(12):
        await created(process.store, f"nightly-{number:02}")
    lists = of(process).lists
    found = await lists.list_runs(ListRuns(find="nightly"))
    assert [run["id"] for run in found["runs"]] == [f"nightly-{number:02}" for number in range(10)]
    assert found["cursor"] is None
    assert [run["id"] for run in (await lists.list_runs(ListRuns(find="nightly-11")))["runs"]] == [
        "nightly-11"
    ]
    assert (await lists.list_runs(ListRuns(find="nothing")))["runs"] == []
    with pytest.raises(InvalidInput, match="find cannot be combined with other filters"):
        ListRuns(find="x", chat="talk")


async def test_questions_are_listed_by_run(world: World) -> None:
    process = await world.process()
    for name in ("one", "two"):
        await process.start(GATED, name)
    gates = (await of(process).lists.list_gates(ListGates(run="one")))["gates"]
    assert [gate["run"] for gate in gates] == ["one"]


async def test_checkpoints_continue_after_an_event_with_the_same_context(world: World) -> None:
    process = await world.process()
    await process.start(line("a", "b"))
    look = of(process).look
    whole = [one async for one in look.list_checkpoints(ListCheckpoints(run="run"))]
    rest = [one async for one in look.list_checkpoints(ListCheckpoints(run="run", after=whole[1]["seq"]))]
    assert len(whole) > 2
    assert rest == whole[2:]


async def test_messages_are_listed_in_pages(world: World) -> None:
    process = await world.process()
    draft = await speaking(process.store, run_id="run", chat="talk")
    for number in range(2, 5):
        draft = await appended(
            process.store, draft, answered(f"m{number - 1}"), call_of("run", f"m{number}", chat="talk")
        )
    for of_ in ("run", "talk"):
        messages, found, after = of(process).messages, list[str](), 0
        while page := await messages.list_messages(ListMessages(of=of_, after=after, limit=3)):
            found += [one["call"] for one in page]
            after = page[-1]["first_position"]
        assert found == ["m1", "m2", "m3", "m4"], of_

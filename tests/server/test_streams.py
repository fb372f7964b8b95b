"""Streams: everything in its order, nothing twice, whoever comes late, is slow, or is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from onward.model.call import CallFinished, CallStatus
from onward.model.chat import chat_of_run
from onward.model.events import RunCancelled, RunPaused
from onward.model.gate import GateDecided
from onward.store.port.retention import Kin
from tests.conformance.drafts import created, fork, grown, held, requested, stepped
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.messages import appended, growth, speaking
from tests.conformance.questions import YES, asked
from tests.server.following import Following, assert_contiguous, followed, following
from tests.world import in_memory, until


@pytest.fixture
async def server() -> AsyncIterator[Following]:
    async with followed() as found:
        yield found


async def test_the_events_of_a_run_come_in_order_while_they_happen(server: Following) -> None:
    draft = await held(server.store, "story")
    client = await server.follow("/api/runs/story/events")
    for _ in range(30):
        draft = await stepped(server.store, draft)
    await client.until_id(draft.position.seq)
    assert (client.status, client.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert client.raw.startswith("retry: 1000\n\n")
    assert_contiguous(client.ids("event"))
    assert [one["seq"] for one in client.of("event")] == client.ids()


async def test_the_names_of_the_dialect_are_the_same_from_wherever_a_reader_begins(server: Following) -> None:
    """One event may have none of its names, or several: a reader that was cut off gets all of them again."""
    draft = await grown(server.store, await held(server.store, "story"), steps=500)
    whole = await server.follow("/pipelines/story/events")
    late = await server.follow("/pipelines/story/events?after=700")
    for _ in range(20):
        draft = await stepped(server.store, draft)
        await asyncio.sleep(0)
    for client in (whole, late):
        await client.until_id(draft.position.seq)
    named = whole.of("event")
    assert [one["name"] for one in named if one["kind"] == "PipelineStarted"] == ["story"]
    indexes = [one["index"] for one in named if one["kind"] == "StageStarted"]
    assert_contiguous([index + 1 for index in indexes])
    assert len(indexes) > 500
    assert late.of("event") == [one for one in named if one["seq"] > 700]


async def test_a_long_backlog_and_what_happens_meanwhile_come_without_a_gap(server: Following) -> None:
    draft = await grown(server.store, await held(server.store, "story"), steps=2_000)
    first = await server.follow("/api/runs/story/events")
    await first.until("event")
    late = await server.follow("/api/runs/story/events?after=2500")
    for _ in range(20):
        draft = await stepped(server.store, draft)
        await asyncio.sleep(0)
    for client in (first, late):
        await client.until_id(draft.position.seq)
    assert_contiguous(first.ids())
    assert_contiguous(late.ids(), after=2500)


async def test_a_reader_that_comes_late_gets_all_that_was_before(server: Following) -> None:
    """A topic that others follow already has moved on: a newcomer begins at its own cursor all the same."""
    draft = await held(server.store, "story")
    first = await server.follow("/api/runs/story/events")
    draft = await stepped(server.store, draft, times=10)
    await first.until_id(draft.position.seq)
    late = await server.follow("/api/runs/story/events")
    draft = await stepped(server.store, draft, times=5)
    await late.until_id(draft.position.seq)
    await first.until_id(draft.position.seq)
    assert_contiguous(late.ids())
    assert_contiguous(first.ids())


async def test_whoever_comes_back_gets_what_follows_the_last_event_that_it_saw(server: Following) -> None:
    draft = await stepped(server.store, await held(server.store, "story"), times=10)
    client = await server.follow("/api/runs/story/events?after=2", headers={"last-event-id": "7"})
    draft = await stepped(server.store, draft)
    await client.until_id(draft.position.seq)
    assert_contiguous(client.ids(), after=7)


async def test_a_stream_ends_with_its_run_and_does_not_begin_behind_it(server: Following) -> None:
    """A browser that is told 204 does not come back."""
    draft = await stepped(server.store, await held(server.store, "story"))
    client = await server.follow("/api/runs/story/events")
    await client.until_id(draft.position.seq)
    draft = await requested(server.store, draft, RunCancelled(reason="user", by="tests"))
    assert (await client.ended())[-2:] == ["event", "end"]
    assert client.of("end") == [{"run": "story", "status": "cancelled"}]
    assert client.came[-1].id is None
    assert_contiguous(client.ids())
    behind = await server.follow(f"/api/runs/story/events?after={draft.position.seq}")
    await behind.ended()
    assert (behind.status, behind.raw) == (204, "")
    last = await server.follow(f"/api/runs/story/events?after={draft.position.seq - 1}")
    assert await last.ended() == ["event", "end"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/runs/nothing/events", 404),
        ("/api/messages?of=nobody", 404),
        ("/api/messages", 422),
        ("/api/runs/story/events?after=x", 422),
        ("/api/runs/story/events?after=-1", 422),
        ("/api/runs/story/events?after=999", 422),  # else it would wait for event 1,000 without a word
        ("/api/messages?of=story&after=999", 422),
        ("/api/runs/story/events?limit=5", 422),
        ("/api/feed?after=99999999999999999999", 422),
    ],
)
async def test_what_cannot_be_followed_is_refused_before_the_stream_begins(
    server: Following, path: str, status: int
) -> None:
    await held(server.store, "story")
    client = await server.follow(path)
    await client.ended()
    assert client.status == status
    assert client.headers["content-type"] == "application/problem+json"
    assert not server.streams.open_now


async def test_a_fork_is_told_with_what_it_shares_with_its_parent(server: Following) -> None:
    parent = await stepped(server.store, await held(server.store, "parent"), times=4)
    write, draft = fork(parent, "child")
    await stepped(server.store, parent, times=3)  # what the parent does later is not the fork's
    await server.store.log.create(write, "fork")
    client = await server.follow("/api/runs/child/events?after=2")
    await client.until_id(draft.position.seq)
    assert_contiguous(client.ids(), after=2)
    assert client.of("event")[-1]["kind"] == "RunForked"
    assert {one["run"] for one in client.of("event")[:-1]} == {"parent"}


class _SlowHeads(Around[Any]):
    """The runs of a store, whose heads take as long to be told as on a server."""

    async def heads(self, ids: Collection[str]) -> Any:
        found = await self.part.heads(ids)
        await asyncio.sleep(0.02)
        return found


async def test_a_run_that_is_followed_while_others_are_looked_at_is_not_taken_for_deleted() -> None:
    """Whoever comes during a look was not asked about in it."""
    async with in_memory() as world:
        process = await world.process(wrap=lambda store: FaultyStore(store, runs=_SlowHeads))
        async with following(world, process) as server:
            runs = [await held(server.store, f"run-{number}") for number in range(12)]
            clients, waits = [], []
            for run in runs:
                clients.append(await server.follow(f"/api/runs/{run.id}/events"))
                waits.append(asyncio.create_task(server.streams.hub.settled(run.id, within_s=1.0)))
                server.streams.hub.poke()  # so that many looks begin and end meanwhile
                await asyncio.sleep(0.02)
            for client in clients:
                await client.until("event", 2)
            assert not any(await asyncio.gather(*waits))
            assert {name for client in clients for name in client.names()} == {"event"}


async def test_the_stream_of_a_run_that_is_deleted_ends(server: Following) -> None:
    draft = await appended(server.store, await held(server.store, "story"), RunPaused(reason="user"))
    client = await server.follow("/api/runs/story/events")
    socket = await server.live("run=story&after=0&runs=story")
    await client.until_id(draft.position.seq)
    await socket.until("row")
    assert not client.is_over  # it can be resumed
    kin = Kin(id="story", head=draft.position.seq, status=draft.run.status)
    assert await server.store.retention.delete([kin]) == ["story"]
    assert (await client.ended())[-1] == "end"
    assert client.of("end") == [{"run": "story", "status": "deleted"}]
    assert await socket.until("end", 3) == {"run": "story", "status": "deleted"}
    again = await server.follow(f"/api/runs/story/events?after={draft.position.seq}")
    await again.ended()
    assert again.status == 404


async def test_what_a_model_says_comes_piece_by_piece(server: Following) -> None:
    draft = await speaking(server.store, run_id="talk")
    client = await server.follow("/api/messages?of=talk")
    for index in range(1, 40):
        await server.store.messages.flush([growth(draft, f"{index};", first=index)], 1)
    draft = await appended(
        server.store,
        draft,
        CallFinished(step="start#1", attempt=1, call="m1", number=1, status=CallStatus.OK, value="x"),
    )
    await client.until_id(41)
    assert_contiguous(client.ids("piece"))
    assert "".join(one["text"] for one in client.of("piece")) == "".join(f"{i};" for i in range(1, 40))
    assert [one["kind"] for one in client.of("piece")][::40] == ["start", "end"]


async def test_a_message_whose_pieces_are_gone_comes_whole_in_its_place(server: Following) -> None:
    draft = await speaking(server.store, run_id="talk")
    await server.store.messages.flush([growth(draft, "Once ", "upon ", "a time")], 1)
    await appended(
        server.store,
        draft,
        CallFinished(step="start#1", attempt=1, call="m1", number=1, status=CallStatus.OK, value="x"),
    )
    await server.store.messages.seal(at_us=2, limit=10)
    assert await server.store.messages.tidy(before_us=2**60, limit=10) == 1
    client = await server.follow(f"/api/messages?of={chat_of_run('talk')}&after=2")
    whole = await client.until("piece")
    assert (whole["kind"], whole["text"], whole["position"]) == ("reset", "Once upon a time", 5)
    assert client.ids() == [5]


async def test_the_messages_of_a_run_are_told_without_those_of_others_in_its_chat(server: Following) -> None:
    one = await speaking(server.store, run_id="one", chat="together")
    two = await speaking(server.store, run_id="two", chat="together")
    mine = await server.follow("/api/messages?of=together")
    batch = [growth(draft, draft.id, chat="together") for draft in (one, two)]
    await server.store.messages.flush(batch, 1)
    await mine.until_id(4)
    assert_contiguous(mine.ids())
    assert [piece["run"] for piece in mine.of("piece")] == ["one", "two", "one", "two"]


async def test_a_feed_begins_with_what_stands_and_tells_what_changes(server: Following) -> None:
    waiting = await asked(server.store, await held(server.store, "waits"))
    client = await server.follow("/api/feed")
    snapshot = await client.until("snapshot")
    assert [gate["run"] for gate in snapshot["gates"]] == ["waits"]
    assert client.ids() == [await server.store.runs.change_number()]
    await held(server.store, "new")
    assert (await client.until("run"))["run"] == "new"
    draft = await requested(server.store, waiting, GateDecided(gate="ask#1", choice=YES, by="pat"))
    run = await client.until("run", 2)
    assert (run["run"], run["head"], run["gates"]) == ("waits", draft.position.seq, [])
    assert client.of("gate") == [{"run": "waits", "gate": "ask#1", "closed": True}]
    draft = await stepped(server.store, draft, times=5)
    draft = await asked(server.store, draft, "ask#2")
    assert (await client.until("run", 3))["gates"] == ["ask#2"]  # and nothing for each step
    assert [gate["gate"] for gate in client.of("gate") if "closed" not in gate] == ["ask#2"]
    assert client.ids() == sorted(set(client.ids()))


async def test_a_feed_that_comes_back_is_told_each_run_that_changed_meanwhile(server: Following) -> None:
    client = await server.follow("/api/feed")
    await client.until("snapshot")
    await held(server.store, "seen")
    await client.until("run")
    await client.hang_up()
    for number in range(450):  # more than a page
        await created(server.store, f"missed-{number}")
    again = await server.follow("/api/feed", headers={"last-event-id": str(client.last)})
    await again.until("run", 450)
    assert [one["run"] for one in again.of("run")] == [f"missed-{number}" for number in range(450)]
    assert again.ids() == sorted(set(again.ids()))


async def test_a_number_of_another_database_begins_the_feed_anew(server: Following) -> None:
    client = await server.follow("/api/feed?after=999999")
    assert await client.until("snapshot") == {"gates": [], "stopped": []}
    assert client.ids() == [await server.store.runs.change_number()]


async def test_a_reader_that_is_too_slow_is_cut_and_misses_nothing_when_it_comes_back(
    server: Following,
) -> None:
    draft = await speaking(server.store, run_id="talk")
    stalled = await server.follow("/api/messages?of=talk", reads=False)
    quick = await server.follow("/api/messages?of=talk")
    await quick.until("piece")
    text, index = "x" * 10_000, 0
    while not stalled.is_cut(server):
        index += 1
        await server.store.messages.flush([growth(draft, text, first=index)], 1)
        await quick.until("piece", index + 1)
        assert index < 100, "it was never cut"
    stalled.reads.set()
    assert (await stalled.ended())[-1] == "cut"
    assert stalled.of("cut") == [{"reason": "slow"}]
    again = await server.follow("/api/messages?of=talk", headers={"last-event-id": str(stalled.last)})
    await again.until_id(quick.last)
    assert_contiguous(stalled.ids() + again.ids())
    assert_contiguous(quick.ids())


async def test_streams_say_goodbye_when_the_server_drains(server: Following) -> None:
    draft = await held(server.store, "story")
    clients = [await server.follow("/api/runs/story/events"), await server.follow("/api/feed")]
    socket = await server.live("feed&run=story")
    await clients[0].until_id(draft.position.seq)
    await clients[1].until("snapshot")
    await socket.until("state")
    server.door.context.life.draining.set()
    for client in (*clients, socket):
        assert (await client.ended())[-1] == "bye"
        assert client.of("bye") == [{"reason": "drain"}]
    assert socket.code == 1001
    refused = await server.follow("/api/feed")
    await refused.ended()
    assert refused.status == 503
    assert (await server.store.log.read("story", after=0, limit=99))[-1].seq == draft.position.seq


async def test_a_stream_whose_token_is_revoked_is_told_so(server: Following) -> None:
    await held(server.store, "story")
    client = await server.follow("/api/runs/story/events")
    stays = await server.follow("/api/runs/story/events", role="operator")
    await client.until("event")
    door = server.door
    (viewer,) = [one for one in await server.store.principals.read() if one.name == "viewer"]
    await server.store.principals.revoke(viewer.id, at_us=door.process.clock.now_us())
    door.process.clock.advance(5.1)
    assert (await client.ended())[-1] == "denied"
    assert not stays.is_over
    refused = await server.follow("/api/runs/story/events")
    await refused.ended()
    assert refused.status == 401


async def test_a_quiet_stream_says_that_it_is_still_there(server: Following) -> None:
    await held(server.store, "story")
    client = await server.follow("/api/runs/story/events")
    await client.until("event")
    server.door.process.clock.advance(16)
    async with asyncio.timeout(10):
        while not client.raw.endswith("\n\n:\n\n"):
            client.moved.clear()
            await client.moved.wait()


async def test_each_credential_has_so_many_streams_and_all_together_have_so_many() -> None:
    async with followed(streams=3, streams_all=5) as server:
        await held(server.store, "story")
        path = "/api/runs/story/events"
        mine = [await server.follow(path) for _ in range(3)]
        for client in mine:
            await client.until("event")
        refused = await server.follow(path)
        await refused.ended()
        assert refused.status == 429
        assert refused.headers["retry-after"] == "5"
        others = [await server.follow(path, role="operator") for _ in range(2)]
        for client in others:
            await client.until("event")
        full = await server.live("run=story", role="operator")
        await full.ended()
        assert full.status == 429
        await mine[0].hang_up()
        again = await server.follow(path)
        await again.until("event")


async def test_whoever_hangs_up_leaves_nothing_behind(server: Following) -> None:
    draft = await held(server.store, "story")
    clients = [await server.follow("/api/runs/story/events") for _ in range(10)]
    sockets = [await server.live("feed&run=story&after=0&runs=story") for _ in range(3)]
    for client in clients:
        await client.until("event")
    for socket in sockets:
        await socket.until("row")
    for client in (*clients, *sockets):
        await client.hang_up()
    assert not server.streams.open_now
    await until(lambda: server.hub.watched == 0)
    draft = await stepped(server.store, draft)  # the run goes on
    assert draft.position.seq == 4


async def test_one_socket_tells_everything_that_a_page_follows(server: Following) -> None:
    draft = await speaking(server.store, run_id="talk")
    socket = await server.live("feed=&run=talk&after=0&of=talk&runs=talk,absent")
    assert await socket.until("snapshot")
    state = await socket.until("state")
    assert (state["id"], state["status"], state["head"]) == ("talk", "running", draft.position.seq)
    assert "context" not in state
    assert (await socket.until("row"))["id"] == "talk"
    await server.store.messages.flush([growth(draft, "hello")], 1)
    await socket.until("piece", 2)
    draft = await asked(server.store, draft)
    assert (await socket.until("run"))["gates"] == ["ask#1"]
    state = await socket.until("state", 2)
    assert state["head"] == draft.position.seq
    assert [one.stream for one in socket.came if one.event == "piece"] == ["messages"] * 2
    assert {one.run for one in socket.came if one.event in ("state", "row")} == {"talk"}
    assert_contiguous([one.id or 0 for one in socket.came if one.event == "event"])
    assert_contiguous([one.id or 0 for one in socket.came if one.event == "piece"])


async def test_a_socket_goes_on_where_another_ended(server: Following) -> None:
    draft = await stepped(server.store, await held(server.store, "story"), times=5)
    number = await server.store.runs.change_number()
    await held(server.store, "later")
    socket = await server.live(f"feed={number}&run=story&after=4")
    await socket.until("run")
    assert socket.of("snapshot") == []
    await socket.until("event", draft.position.seq - 4)
    assert_contiguous([one.id or 0 for one in socket.came if one.event == "event"], after=4)


async def test_the_end_of_one_stream_is_not_the_end_of_the_socket(server: Following) -> None:
    draft = await held(server.store, "story")
    socket = await server.live("feed&run=story&after=0")
    await socket.until("event")
    await requested(server.store, draft, RunCancelled(reason="user", by="tests"))
    assert await socket.until("end") == {"run": "story", "status": "cancelled"}
    await held(server.store, "later")
    await socket.until("run", 2)
    assert not socket.is_over


@pytest.mark.parametrize("query", ["run=nothing", "of=nobody", "feed=x", "follow=all", "run=story&after=-2"])
async def test_a_socket_that_asks_for_what_is_not_there_is_refused(server: Following, query: str) -> None:
    await held(server.store, "story")
    socket = await server.live(query)
    await socket.ended()
    assert socket.status in (404, 422)
    assert not server.streams.open_now


async def test_whoever_waits_for_a_run_is_told_when_it_has_settled(server: Following) -> None:
    draft = await held(server.store, "story")
    hub = server.streams.hub
    assert not await hub.settled("story", within_s=0.01)
    waiting = asyncio.create_task(hub.settled("story", within_s=30))
    await requested(server.store, draft, RunCancelled(reason="user", by="tests"))
    assert await waiting
    assert await hub.settled("story", within_s=0.01)
    assert await hub.settled("nothing", within_s=0.01)


async def test_a_reply_that_is_asked_to_wait_comes_when_the_run_stands_still(server: Following) -> None:
    draft = await held(server.store, "story")
    path, headers = "/api/runs/story", {"Prefer": "wait=30"}
    waiting = [asyncio.create_task(server.door.get(path, headers=headers)) for _ in range(5)]
    await until(lambda: server.hub.watched == 1)  # they share one look
    await requested(server.store, draft, RunCancelled(reason="user", by="tests"))
    for reply in await asyncio.gather(*waiting):
        assert (reply.status, reply.json["status"]) == (200, "cancelled")
        assert reply.header("preference-applied") == "wait"
    assert server.hub.watched == 0


async def test_a_reply_that_waits_comes_when_the_server_drains(server: Following) -> None:
    await held(server.store, "story")
    waiting = asyncio.create_task(server.door.get("/api/runs/story", headers={"Prefer": "wait=30"}))
    await until(lambda: server.hub.watched == 1)
    server.door.context.life.draining.set()
    assert (await waiting).json["status"] == "running"

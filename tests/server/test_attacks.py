"""What was got past the server by somebody who tried, and does not get past it any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace

import msgspec
import pytest
from starlette.responses import Response

from onward.errors import StoreError, StoreFull, StoreIO, StoreReadOnly, StoreUnavailable
from onward.operations.http import VIEWER
from onward.server.place import Asked, Place
from onward.store.port.runs import write_cursor
from tests.chats.desk import Desk
from tests.server.door import HOST as HERE
from tests.server.door import Door, a_door, door_of, exchange, handshake
from tests.world import in_memory

ASKING = """digraph asking {
    start [shape=Mdiamond]; exit [shape=Msquare]
    ask [shape=hexagon, label="Ship it?"]
    ship [prompt="ship it"]
    start -> ask; ask -> ship [label="Approve"]; ask -> exit [label="Reject"]; ship -> exit
}"""


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with a_door(failures=3) as door:
        yield door


async def asking(door: Door, **how: str) -> str:
    """A run that waits for an answer."""
    assert (await door.ask("PUT", "/api/pipelines/asking", {"source": ASKING})).status == 200
    made = await door.post("/api/runs", {"pipeline": "asking", **how})
    run: str = made.json["run"]["id"]
    await Desk(door.process).work()
    assert (await door.get(f"/api/runs/{run}")).json["status"] == "waiting"
    return run


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
@pytest.mark.parametrize(
    ("path", "names"), [("runs", ("x",)), ("chats", ()), ("gates", ("x", "y")), ("notifications", ("x", "y"))]
)
async def test_a_made_up_cursor_is_refused(
    door: Door, path: str, names: tuple[str, ...], number: int
) -> None:
    """It held a number that no database has, and was an internal error."""
    refused = await door.get(f"/api/{path}?cursor={write_cursor((number, *names))}")
    assert (refused.status, refused.code) == (422, "invalid_input")


async def test_the_checkpoint_of_a_chat_is_told_though_nothing_was_said_in_it(door: Door) -> None:
    """A run may be given a chat without a message; its chat said that nothing ran and nothing was asked."""
    run = await asking(door, chat="talk")
    assert (await door.get("/agents/status?chatId=talk")).json["pendingCheckpoint"] is not None
    shown = (await door.get("/api/chat?chat=talk")).json
    assert ([one["id"] for one in shown["runs"]], shown["gate"]["run"]) == ([run], run)
    stopped = await door.post("/agents/stop", {"chatId": "talk"})
    assert stopped.json == {"status": "stopped", "chatId": "talk", "pipelineRunId": run}


async def test_a_body_with_two_lengths_is_refused_and_its_connection_closed(door: Door) -> None:
    """Its rest was taken for a request of its own, as a proxy's next client may have sent it."""
    sent = [("host", HERE), ("authorization", f"Bearer {await door.token('admin')}")]
    sent += [("content-length", "2"), ("transfer-encoding", "chunked"), ("content-type", "application/json")]
    reply = await exchange(door.app, "POST", "/api/runs", sent, b"{}")
    assert (reply.status, reply.code, reply.header("connection")) == (400, "bad_request", "close")


async def test_whoever_was_let_in_before_is_not_locked_out_by_others_who_guess(door: Door) -> None:
    """All who come through one proxy, and all programs of one machine, have one address."""
    assert (await door.get("/api/runs", role="viewer")).status == 200
    door.process.clock.advance(3)
    guess = {"authorization": f"Bearer onw_{'0' * 16}_{'a' * 43}"}
    codes = [(await door.get("/api/runs", headers=guess)).status for _ in range(5)]
    assert codes == [401, 401, 401, 429, 429]
    door.process.clock.advance(6)
    assert (await door.get("/api/runs", headers=guess)).status == 429
    assert (await door.get("/api/runs", role="viewer")).status == 200


async def test_whoever_holds_a_token_of_ours_is_let_in_while_others_guess(door: Door) -> None:
    """Nobody guesses 256 bits. Ten wrong tokens a minute kept out all who had not come before: after a
    restart everybody, and whoever had just signed in."""
    guess = {"authorization": f"Bearer onw_{'0' * 16}_{'a' * 43}"}
    for _ in range(5):
        await door.get("/api/runs", headers=guess)
    assert (await door.get("/api/runs", headers=guess)).status == 429
    assert (await door.get("/api/runs", role="operator")).status == 200
    signed_in = await door.post("/api/session", {"token": await door.token("viewer")}, role=None)
    cookie = {"cookie": (signed_in.header("set-cookie") or "").partition(";")[0]}
    assert (await door.get("/api/session", headers=cookie, role=None)).json["name"] == "viewer"
    assert (await door.get("/api/runs", headers=guess)).status == 429


async def test_who_signed_in_and_out_is_in_the_audit(door: Door) -> None:
    """Of whoever got in with somebody else's token nothing was left."""
    signed_in = await door.post("/api/session", {"token": await door.token("viewer")}, role=None)
    cookie = {"cookie": (signed_in.header("set-cookie") or "").partition(";")[0]}
    assert (await door.ask("DELETE", "/api/session", headers=cookie, role=None)).status == 200
    await door.post("/api/session", {"token": "wrong"}, role=None)
    rows = (await door.get("/api/audit")).json["changes"]
    told = [(row["operation"], row["by"], row["address"], row["status"]) for row in rows]
    assert told == [
        ("session.sign_out", "token:viewer", "127.0.0.1", 200),
        ("session.sign_in", "token:viewer", "127.0.0.1", 200),
    ]


async def test_a_token_opens_so_many_sessions_a_second_and_no_more() -> None:
    """Each is a row of the database for a day."""
    async with a_door(creations=2.0) as door:
        given = {"token": await door.token("viewer")}
        codes = [(await door.post("/api/session", given, role=None)).status for _ in range(3)]
    assert codes == [200, 200, 429]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/workflows/{run}/cancel", {}),
        ("/api/workflows/{run}/approve", {}),
        ("/api/workflows/{run}/reject", {"feedback": "no"}),
        ("/api/workflows/{run}/resume", {}),
        ("/pipelines/{run}/cancel", {}),
        ("/pipelines/{run}/answer", {"choice": "Approve"}),
        ("/agents/stop", {"chatId": "talk"}),
        ("/agents/checkpoint", {"chatId": "talk", "checkpointId": "ask#1", "selectedIndex": 0}),
    ],
)
async def test_if_match_counts_on_the_paths_of_other_interfaces(
    door: Door, path: str, body: dict[str, object]
) -> None:
    """It was ignored there: a decision was made about a run that had moved on."""
    run = await asking(door, chat="talk")
    refused = await door.post(path.format(run=run), body, headers={"If-Match": '"1"'})
    assert (refused.status, refused.code) == (412, "stale_head")
    assert (await door.get(f"/api/runs/{run}")).json["status"] == "waiting"


async def test_a_key_is_told_as_its_caller_wrote_it(door: Door) -> None:
    """The name of it inside had the id of the caller's token before it."""
    run, key = await asking(door), {"Idempotency-Key": "a/b"}
    assert (await door.post(f"/api/runs/{run}/pause", headers=key)).status == 200
    refused = await door.post(f"/api/runs/{run}/cancel", headers=key)
    assert (refused.code, refused.json["details"]) == ("key_reused", {"run": run, "key": "a/b"})
    said = {"text": "x", "pipeline": "asking"}
    await door.post("/api/messages", {"chat": "one", **said}, headers=key)
    reply = await door.post("/api/messages", {"chat": "two", **said}, headers=key)
    assert (reply.code, reply.json["details"]) == ("key_reused", {"chat": "one", "key": "a/b"})


async def test_if_match_is_refused_where_no_run_is_named(door: Door) -> None:
    refused = await door.post("/agents/run", {"chatId": "c", "message": "x"}, headers={"If-Match": '"1"'})
    assert (refused.status, refused.code) == (422, "invalid_input")
    assert (await door.get("/api/chat?chat=c")).status == 404


async def test_a_change_that_was_made_is_told_though_the_audit_cannot_be_completed() -> None:
    """The reply was 503, and whoever asked again had it done twice."""

    class Lost:
        async def finish(self, n: int, *, code: int, at_us: int) -> None:
            raise StoreUnavailable("the database is gone.")

    async def change(asked: Asked) -> Response:
        await asked.note("change", "something", None)
        asked.context = msgspec.structs.replace(asked.context, store=SimpleNamespace(audit=Lost()))
        return Response(b"done", 200)

    async with in_memory() as world:
        door = await door_of(world, (lambda context: [Place("POST", "/api/change", VIEWER, change)],))
        reply = await door.post("/api/change")
    assert (reply.status, reply.body) == (200, b"done")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (StoreFull("no space left on /srv/onward.db."), "the database has no space left."),
        (StoreReadOnly("/srv/onward.db is read-only."), "the database cannot be written."),
        (StoreUnavailable("nobody listens on 10.0.0.1."), "the database cannot be reached."),
        (StoreIO("cannot read /srv/onward.db."), "the database cannot be used."),
    ],
)
async def test_what_is_wrong_with_a_database_is_told_and_logged_once(
    error: StoreError, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk was told as a database that cannot be reached, and the log of the server said nothing."""

    async def fail(asked: Asked) -> Response:
        raise error

    async with in_memory() as world:
        door = await door_of(world, (lambda context: [Place("GET", "/api/broken", VIEWER, fail)],))
        reply, *_ = [await door.get("/api/broken") for _ in range(3)]
        assert (reply.status, reply.code, reply.json["detail"]) == (503, "store_unavailable", says)
        assert [str(error) in one.getMessage() for one in caplog.records] == [True]
        door.process.clock.advance(60)
        await door.get("/api/broken")
    assert len(caplog.records) == 2


async def test_a_refused_websocket_has_the_headers_of_every_reply(door: Door) -> None:
    refused = await handshake(door, "/api/live", role=None)
    assert (refused.status, refused.header("x-content-type-options")) == (401, "nosniff")
    assert refused.header("cache-control") == "no-store"
    assert "WebSocket" in (await handshake(door, "/docs")).json["detail"]


async def test_a_body_that_breaks_off_is_no_error_of_the_server(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever hung up could fill the log with tracebacks."""
    sent = [("host", HERE), ("authorization", f"Bearer {await door.token('operator')}")]
    sent += [("content-length", "2"), ("content-type", "application/json")]
    reply = await exchange(door.app, "POST", "/api/runs", sent, None)
    assert (reply.status, caplog.records) == (400, [])


async def test_an_operator_does_not_lead_a_run_past_its_gate(door: Door) -> None:
    """Who paused a waiting run could resume it behind the gate, and so approve without being an approver."""
    run = await asking(door)
    assert (await door.post(f"/api/runs/{run}/pause", role="operator")).json["status"] == "paused"
    past = {"from_node": "ship"}
    refused = await door.post(f"/api/runs/{run}/resume", past, role="operator")
    assert (refused.status, refused.code) == (403, "wrong_role")
    assert (await door.get(f"/api/runs/{run}")).json["status"] == "paused"
    again = await door.post(f"/api/runs/{run}/resume", {"from_node": "ask"}, role="operator")
    assert (again.status, again.json["next"]) == (200, "ask")


async def test_an_operator_changes_nothing_behind_an_answered_gate(door: Door) -> None:
    """A fork behind the gate went on with other values than those that were approved."""
    run = await asking(door)
    assert (await door.post(f"/api/runs/{run}/answer", {"verdict": "approve"})).status == 200
    await Desk(door.process).work()
    path, behind = f"/api/runs/{run}/fork", {"from_step": "ship"}
    other = {**behind, "changes": {"version": 2}}
    refused = await door.post(path, other, role="operator")
    assert (refused.status, refused.code, refused.json["details"]) == (
        403,
        "wrong_role",
        {"role": "approver"},
    )
    assert (await door.post(path, behind, role="operator")).status == 201
    before = {"from_step": "ask", "changes": {"version": 2}}
    assert (await door.post(path, before, role="operator")).status == 201
    both = {"authorization": f"Bearer {await door.token('operator', 'approver')}"}
    assert (await door.post(path, other, headers=both)).status == 201


async def test_a_run_is_named_by_its_whole_id_wherever_it_is_named(door: Door) -> None:
    """The beginning of an id set the limit of whichever run it belonged to."""
    run = await asking(door, run_id="order-17")
    shown = (await door.get(f"/api/runs/{run}")).json["display_id"]
    limit = {"measure": "tokens", "value": 5}
    for name in ("order", shown, "id:order-17"):
        for reply in (
            await door.ask("PUT", f"/api/limits?scope=run/{name}", limit),
            await door.ask("DELETE", f"/api/limits?scope=run/{name}"),
            await door.get(f"/api/gates?run={name}"),
            await door.get(f"/api/notifications?run={name}"),
            await door.get(f"/api/messages?of={name}"),
        ):
            assert reply.status == 404, reply
    assert (await door.ask("PUT", "/api/limits?scope=run/order-17", limit)).status == 200
    assert (await door.get("/api/audit?limit=1")).json["changes"][0]["subject"] == "run/order-17"
    assert len((await door.get("/api/gates?run=order-17")).json["gates"]) == 1
    assert (await door.get("/api/messages?of=order-17")).status == 200


async def test_an_operator_does_not_jump_a_gate_before_it_is_reached(door: Door) -> None:
    assert (await door.ask("PUT", "/api/pipelines/asking", {"source": ASKING})).status == 200
    run = (await door.post("/api/runs", {"pipeline": "asking"})).json["run"]["id"]
    assert (await door.post(f"/api/runs/{run}/pause", role="operator")).json["status"] == "paused"
    past = {"from_node": "ship"}
    claimed = {**past, "may_answer": True}
    assert (await door.post(f"/api/runs/{run}/resume", claimed, role="operator")).status == 422
    assert (await door.post(f"/api/runs/{run}/resume", past, role="operator")).status == 403
    assert (await door.post(f"/api/runs/{run}/resume", past)).json["next"] == "ship"


async def test_a_limit_that_is_too_small_does_not_end_the_limit(door: Door) -> None:
    """It was rounded to 0, which is no limit, and answered with 200."""
    assert (await door.ask("PUT", "/settings/limits", {"maxCostPerDay": 2})).status == 200
    assert (await door.ask("PUT", "/settings/limits", {"maxCostPerDay": 0.0000004})).status == 422
    assert (await door.get("/settings")).json["limits"]["maxCostPerDay"] == 2

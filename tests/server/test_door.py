"""The door: whose address, who asks, in which role; and what is asked, exactly."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from starlette.responses import Response

from onward.operations.http import VIEWER
from onward.server.place import Asked, Place
from tests.server.door import SOURCE, Door, a_door, door_of
from tests.test_pause import GATED
from tests.world import in_memory


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with a_door() as door:
        yield door


async def registered(door: Door, name: str = "site") -> None:
    reply = await door.ask("PUT", f"/api/pipelines/{name}", {"source": SOURCE})
    assert reply.status == 200, reply.body


async def test_nothing_is_told_without_a_credential(door: Door) -> None:
    assert (await door.get("/api/runs", role=None)).code == "no_credential"
    assert (await door.get("/api/nothing", role=None)).code == "no_credential"
    assert (await door.get("/healthz", role=None)).status == 200


async def test_a_load_balancer_may_ask_for_the_head_of_what_is_open(door: Door) -> None:
    for path in ("/healthz", "/readyz", "/favicon.svg"):
        there = await door.get(path, role=None)
        head = await door.ask("HEAD", path, role=None)
        assert (head.status, head.headers) == (there.status, there.headers)
    assert (await door.ask("HEAD", "/api/runs", role=None)).code == "no_credential"
    assert (await door.ask("HEAD", "/api/feed")).status == 405


async def test_a_run_is_created_listed_and_cancelled(door: Door) -> None:
    await registered(door)
    made = await door.post("/api/runs", {"pipeline": "site"}, role="operator")
    assert made.status == 201
    run = made.json["run"]
    assert made.header("location") == f"/api/runs/{run['id']}"
    assert run["on_owner_loss"] == "interrupt"
    listed = await door.get("/api/runs?status=queued&status=failed", role="viewer")
    assert [one["id"] for one in listed.json["runs"]] == [run["id"]]
    shown = await door.get(f"/api/runs/{run['id']}", role="viewer")
    assert shown.header("etag") == f'"{run["head"]}"'
    stale = await door.post(f"/api/runs/{run['id']}/cancel", headers={"If-Match": '"77"'})
    assert (stale.status, stale.code) == (412, "stale_head")
    done = await door.post(f"/api/runs/{run['id']}/cancel", headers={"If-Match": shown.header("etag") or ""})
    assert done.json["status"] == "cancelled"


async def test_a_run_is_named_by_its_whole_id_alone(door: Door) -> None:
    await registered(door)
    run = (await door.post("/api/runs", {"pipeline": "site"})).json["run"]
    for name in (run["display_id"], run["id"][:20], f"id:{run['id']}", run["id"].upper()):
        assert (await door.post(f"/api/runs/{name}/cancel")).status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/runs?statuses=failed"), ("GET", "/api/runs?find_=x"), ("GET", "/api/runs?limit=0")],
)
async def test_a_parameter_that_means_nothing_is_refused(door: Door, method: str, path: str) -> None:
    assert (await door.ask(method, path)).code == "invalid_input"


async def test_a_caller_cannot_choose_who_they_are(door: Door) -> None:
    for field in ("by", "key", "if_head"):
        reply = await door.post("/api/runs/x/pause", {field: "1"})
        assert (reply.status, reply.code) == (422, "invalid_input")


async def test_what_only_this_machine_has_is_not_over_http(door: Door) -> None:
    for field in ("source", "file", "path", "workdir", "workspace"):
        assert (await door.post("/api/runs", {"pipeline": "site", field: "x"})).code == "not_over_http"


async def test_an_answer_counts_for_the_question_that_was_shown(door: Door) -> None:
    """S21: the inbox and the run have the same hash; a program may leave it out."""
    await door.process.start(GATED)
    (listed,) = (await door.get("/api/gates", role="viewer")).json["gates"]
    (shown,) = (await door.get("/api/runs/run/steps", role="viewer")).json["gates"]
    assert shown["content_hash"] == listed["content_hash"]
    said = {"gate": shown["gate"], "choice": "Y"}
    wrong = await door.post("/api/runs/run/answer", {**said, "content_hash": "0" * 64}, role="approver")
    assert (wrong.status, wrong.code) == (409, "gate_changed")
    assert wrong.json["details"]["content_hash"] == shown["content_hash"]
    (still,) = (await door.get("/api/gates", role="viewer")).json["gates"]
    assert still == listed
    right = {**said, "content_hash": shown["content_hash"]}
    assert (await door.post("/api/runs/run/answer", right, role="approver")).json["status"] == "queued"


async def test_the_same_key_finds_the_same_run_and_says_so(door: Door) -> None:
    """A reply that was lost is asked again, never guessed."""
    await registered(door)
    key = {"Idempotency-Key": "a key"}
    first = await door.post("/api/runs", {"pipeline": "site"}, headers=key)
    door.process.clock.advance(1)
    again = await door.post("/api/runs", {"pipeline": "site"}, headers=key)
    assert first.header("idempotency-replayed") is None
    assert again.header("idempotency-replayed") == "true"
    assert (first.status, again.status) == (201, 201)
    assert first.json["run"]["id"] == again.json["run"]["id"]
    other = await door.post("/api/runs", {"pipeline": "site", "tags": ["x"]}, headers=key)
    assert (other.status, other.code) == (422, "key_reused")
    theirs = await door.post("/api/runs", {"pipeline": "site"}, headers=key, role="operator")
    assert theirs.json["run"]["id"] != first.json["run"]["id"]
    run = first.json["run"]["id"]
    cancelled = await door.post(f"/api/runs/{run}/cancel", headers={"Idempotency-Key": "c"})
    repeated = await door.post(f"/api/runs/{run}/cancel", headers={"Idempotency-Key": "c"})
    assert cancelled.json["head"] == repeated.json["head"]
    assert repeated.header("idempotency-replayed") == "true"


@pytest.mark.parametrize("key", ["", "x" * 201, "ünder"])
async def test_a_key_that_is_none_is_refused(door: Door, key: str) -> None:
    await registered(door)
    headers = [("Idempotency-Key", key), ("Idempotency-Key", "b")] if not key else [("Idempotency-Key", key)]
    reply = await door.post("/api/runs", {"pipeline": "site"}, headers=headers)
    assert reply.status == 422 or not key


async def test_a_display_id_is_resolved_by_find_alone(door: Door) -> None:
    await registered(door)
    run = (await door.post("/api/runs", {"pipeline": "site"})).json["run"]
    for name in (run["display_id"], run["display_id"][:3], run["id"]):
        found = (await door.get(f"/api/runs?find={name}")).json["runs"]
        assert run["id"] in [one["id"] for one in found]
    assert (await door.get("/api/runs?find=")).json["runs"] == []


async def test_a_wait_ends_when_the_run_stands_still(door: Door) -> None:
    await registered(door)
    run = (await door.post("/api/runs", {"pipeline": "site"})).json["run"]["id"]
    wait = {"Prefer": "wait=20"}
    reply = await door.post(f"/api/runs/{run}/cancel", headers=wait)
    assert reply.header("preference-applied") == "wait"
    assert reply.json["status"] == "cancelled"
    assert (await door.get(f"/api/runs/{run}", headers=wait)).json["status"] == "cancelled"
    assert (await door.get(f"/api/runs/{run}", headers={"Prefer": "wait=31"})).status == 422


async def test_what_only_an_admin_may_say_is_judged_by_field(door: Door) -> None:
    """A raised limit is a limit that is set; a changed pipeline is one that is added."""
    await registered(door)
    raises = [{"kind": "run", "measure": "calls", "value": 5}]
    for path, body in (
        ("/api/runs/x/resume", {"raises": raises}),
        ("/api/runs/x/resume", {"take_over": True}),
        ("/api/runs/x/resume", {"workdir": "/tmp"}),
        ("/api/runs/x/resume", {"accept_changes": True}),
        ("/api/runs/x/fork", {"accept_changes": True}),
        ("/api/runs", {"pipeline": "site", "simulation": {}, "real_tools": True}),
        ("/api/runs", {"pipeline": "site", "raises": raises}),
    ):
        assert (await door.post(path, body, role="operator")).code == "wrong_role", (path, body)
        assert (await door.post(path, body)).code != "wrong_role"


async def test_a_change_is_in_the_audit_before_it_is_made_and_completed_after(door: Door) -> None:
    await registered(door)
    made = await door.post("/api/runs", {"pipeline": "site", "run_id": "mine"}, role="operator")
    assert made.status == 201
    headers = {"Onward-On-Behalf-Of": "ann", "Idempotency-Key": "k"}
    assert (await door.post("/api/runs/mine/pause", headers=headers)).status == 200
    assert (await door.post("/api/runs/gone/pause")).status == 404
    rows = (await door.get("/api/audit")).json["changes"]
    told = [(row["operation"], row["subject"], row["by"], row["status"]) for row in rows]
    assert told[:3] == [
        ("decide.pause_run", "gone", "token:admin", 404),
        ("decide.pause_run", "mine", "token:admin", 200),
        ("start.submit_run", "", "token:operator", 201),
    ]
    assert (rows[1]["on_behalf_of"], rows[1]["address"]) == ("ann", "127.0.0.1")
    assert rows[1]["key"].endswith("/k")


async def test_a_token_may_ask_so_often_and_no_more() -> None:
    """S23."""
    async with a_door(requests=1.0, burst=3, failures=2) as door:
        assert [(await door.get("/api/runs")).status for _ in range(4)] == [200, 200, 200, 429]
        assert (await door.get("/api/runs")).header("retry-after") == "1"
        wrong = {"authorization": f"Bearer onw_a_{'b' * 43}"}
        found = [(await door.get("/api/runs", headers=wrong)).status for _ in range(4)]
        assert found == [401, 401, 429, 429]
        door.process.clock.advance(60)
        assert (await door.get("/api/runs", headers=wrong)).status == 401


async def test_a_revoked_token_is_refused_within_five_seconds(door: Door) -> None:
    """S24."""
    assert (await door.get("/api/runs", role="viewer")).status == 200
    assert (await door.ask("DELETE", "/api/tokens/viewer")).status == 200
    door.process.clock.advance(5.1)
    assert (await door.get("/api/runs", role="viewer")).code == "bad_credential"


async def test_nothing_of_the_machine_is_told_when_something_fails(caplog: pytest.LogCaptureFixture) -> None:
    """S26: a problem names the request, and no text, path, SQL or class."""

    async def fail(asked: Asked) -> Response:
        raise RuntimeError("SELECT secret FROM /srv/onward.db")

    async with in_memory() as world:
        door = await door_of(world, (lambda context: [Place("GET", "/api/broken", VIEWER, fail)],))
        reply = await door.get("/api/broken")
    assert (reply.status, reply.code) == (500, "internal")
    assert not any(word in reply.body for word in (b"SELECT", b"/srv", b"RuntimeError"))
    assert reply.json["request"] in caplog.text

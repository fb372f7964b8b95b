"""The door: whose address, who asks, in which role; and what is asked, exactly."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.door import SOURCE, Door, a_door


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

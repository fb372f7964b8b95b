"""MCP servers at an address: JSON or streams of events, sessions that are lost, and headers that are keys."""

from __future__ import annotations

import asyncio

import pytest

from onward.agents.tools.mcp.protocol import ServerFailed
from onward.agents.tools.port import ToolAnswer, ToolRefused
from onward.errors import CallTimedOut
from onward.testing.clock import ManualClock
from tests.agents.tools.mcp_servers import Client, Site, site


async def test_a_server_is_asked_in_one_session() -> None:
    async with site() as (served, client):
        assert await client.use("echo", text="x") == ToolAnswer("echo: x")
        assert served.methods == ["initialize", "notifications/initialized", "tools/list", "tools/call"]
        first, *others = [headers for _, headers, _ in served.asked]
        assert "mcp-session-id" not in first
        assert {headers["mcp-session-id"] for headers in others} == {"session-1"}
        assert {headers["mcp-protocol-version"] for headers in others} == {"2025-11-25"}
        assert all(headers["accept"] == "application/json, text/event-stream" for headers in [first, *others])
    assert served.asked[-1][0] == "DELETE"
    assert served.sessions == set()


async def test_a_server_that_keeps_its_sessions_is_left() -> None:
    async with site("stays") as (served, client):
        await client.named()
    assert served.asked[-1][0] == "DELETE"


async def test_an_answer_in_a_stream_may_come_after_other_events() -> None:
    async with site() as (served, client):
        assert await client.use("events", text="x") == ToolAnswer("events: x")
        await client.named()
        assert served.methods.count("tools/list") == 2  # one of the events said that the list has changed
        await served.until_asked("")  # the answer to what the server asked is a request of its own
        reply = next(body for _, _, body in served.asked if body.get("id") == 900)
        assert reply["error"]["code"] == -32601


async def test_a_list_that_could_not_be_read_is_read_again() -> None:
    async with site("unlisted") as (served, client):
        with pytest.raises(ServerFailed, match="cannot list its tools: not now"):
            await client.named()
        served.faults.clear()
        assert "files__echo" in await client.named()


async def test_a_session_that_is_lost_is_begun_again() -> None:
    async with site() as (served, client):
        await client.use("echo", text="x")
        served.sessions.clear()
        assert await client.use("echo", text="y") == ToolAnswer("echo: y")
        assert served.number == 2
        assert served.methods.count("tools/call") == 3  # the one in the middle was not served


async def test_a_server_that_forgets_every_session_is_given_up() -> None:
    async with site("forgetful") as (served, client):
        with pytest.raises(ServerFailed, match="loses every session"):
            await client.named()
        assert served.number <= 2


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("status", "the MCP server 'files' rejected the request (503); check its url and its state"),
        ("locked", "rejected the request (401); check its headers"),
        ("moved", "rejected the request (307); check its url and its state"),
        ("page", "answered with text/html, which is not a message; check its url"),
    ],
)
async def test_an_address_that_is_no_server_says_why(fault: str, told: str) -> None:
    async with site(fault) as (_, client):
        with pytest.raises(ServerFailed) as failed:
            await client.named()
        assert told in str(failed.value)


async def test_a_server_that_is_not_there_says_why() -> None:
    async with site(url="http://127.0.0.1:1/mcp") as (_, client):
        with pytest.raises(ServerFailed, match="could not be reached: connection refused"):
            await client.named()


@pytest.mark.parametrize(
    ("name", "told"),
    [("cut", "ended its response without a result"), ("huge", "sent a message of more than 8 MiB")],
)
async def test_a_use_that_a_server_may_have_done_is_in_doubt(name: str, told: str) -> None:
    async with site() as (_, client):
        with pytest.raises(CallTimedOut, match=told):
            await client.use(name)


async def test_a_server_that_went_away_did_nothing() -> None:
    async with site() as (served, client):
        tool = (await client.named())["files__echo"]
        assert not tool.rules.repeatable
        served.faults.add("locked")
        with pytest.raises(ToolRefused, match="check its headers"):
            await client.use("echo")


async def time_out(served: Site, client: Client, clock: ManualClock) -> None:
    """Use a tool that takes longer than it may; the server has noticed that afterwards."""
    using = asyncio.create_task(client.use("hang", time_limit_s=5))
    await served.hanging.wait()
    clock.advance(6)
    with pytest.raises(CallTimedOut):
        await using
    await served.gone.wait()


async def test_a_use_that_takes_too_long_is_cancelled_at_the_server() -> None:
    clock = ManualClock(autojump=False)
    async with site(clock=clock) as (served, client):
        await time_out(served, client, clock)
        await served.until_asked("notifications/cancelled")


async def test_headers_are_keys_by_reference() -> None:
    headers = {"Authorization": "env:SECRET_TOKEN", "X-Team": "search"}
    async with site(headers=headers) as (served, client):
        await client.use("echo")
        assert all(sent["authorization"] == "canary-0123456789" for _, sent, _ in served.asked)
        assert all(sent["x-team"] == "search" for _, sent, _ in served.asked)


async def test_a_key_that_is_missing_is_named_and_nothing_is_sent() -> None:
    async with site(headers={"Authorization": "env:NO_SUCH"}) as (served, client):
        with pytest.raises(ServerFailed, match="cannot be used: the variable NO_SUCH"):
            await client.named()
        assert served.asked == []


async def test_a_server_without_a_handshake_is_told_everything_with_each_request() -> None:
    clock = ManualClock(autojump=False)
    async with site("modern", clock=clock) as (served, client):
        assert await client.use("echo", text="x", region="Ü") == ToolAnswer("echo: x")
        assert served.methods == ["initialize", "server/discover", "tools/list", "tools/call"]
        _, headers, body = served.asked[-1]
        assert headers["mcp-protocol-version"] == "2026-07-28"
        assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "echo")
        assert headers["mcp-param-region"] == "=?base64?w5w=?="
        assert body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        (warned,) = client.warned
        assert warned.startswith(
            "the tool 'odd' of the MCP server 'files' is left out: its parameter 'n' has"
        )
        await time_out(served, client, clock)
        assert "notifications/cancelled" not in served.methods  # the closed connection says it

"""MCP servers that are programs of ours: what they may send, how they fail, and that none is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onward.agents.tools.mcp.protocol import ServerFailed
from onward.agents.tools.port import ToolAnswer, ToolRefused, ToolUse
from onward.errors import CallTimedOut
from onward.testing.clock import ManualClock
from tests.agents.tools.mcp_servers import program
from tests.agents.tools.using import a_step, used
from tests.engine.processes import Processes


async def test_a_server_is_started_at_the_first_use_and_shared(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        assert client.pids() == []
        tools = await client.named()
        assert "files__echo" in tools
        answers = await asyncio.gather(*(used(tools["files__echo"], {"text": str(n)}) for n in range(20)))
        assert answers == [ToolAnswer(f"echo: {n}") for n in range(20)]
        assert len(client.pids()) == 1
        begun = [one for one in client.heard() if "method" in one]
        assert [one["method"] for one in begun[:3]] == [
            "initialize",
            "notifications/initialized",
            "tools/list",
        ]
        assert begun[0]["params"]["protocolVersion"] == "2025-11-25"
        assert begun[0]["params"]["capabilities"] == {}


async def test_a_server_that_is_closed_leaves_no_process(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        await client.named()
        processes = Processes(client.pids())
    try:
        assert processes.survivors(10) == []
    finally:
        processes.close()


@pytest.mark.crash
async def test_a_stubborn_server_and_its_children_are_killed(tmp_path: Path) -> None:
    async with program(tmp_path, "stubborn", "child") as client:
        await client.named()
        await client.until_heard(lambda _: len(client.pids()) == 2)
        processes = Processes(client.pids())
    try:
        assert processes.survivors(20) == []
    finally:
        processes.close()


OWNER = """
import asyncio, sys
from pathlib import Path
from typing import Any
from tests.agents.tools.mcp_servers import program
async def main():
    async with program(Path(sys.argv[1]), "stubborn", "child") as client:
        await client.named()
        await client.until_heard(lambda _: len(client.pids()) == 2)
        print(*client.pids(), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.crash
async def test_nothing_of_a_server_outlives_our_own_kill(tmp_path: Path) -> None:
    ours = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert ours.stdout is not None
    processes = Processes([int(pid) for pid in (await ours.stdout.readline()).split()])
    try:
        assert len(processes.pids) == 2
        ours.send_signal(signal.SIGKILL)
        await ours.wait()
        assert processes.survivors(20) == []
    finally:
        processes.close()


async def test_a_server_gets_no_variable_that_is_not_named(tmp_path: Path) -> None:
    async with program(tmp_path, env=["WANTED"]) as client:
        answer = await client.use("environment")
        found = json.loads(answer.text.removeprefix("environment: "))
        assert found["WANTED"] == "yes"
        assert "SECRET_TOKEN" not in found


async def test_lists_in_pages_are_read_whole(tmp_path: Path) -> None:
    async with program(tmp_path, "pages") as client:
        assert len(await client.named()) == 12


async def test_a_list_without_end_is_refused(tmp_path: Path) -> None:
    async with program(tmp_path, "endless") as client:
        with pytest.raises(ServerFailed, match="repeats the same ones endlessly"):
            await client.named()


async def test_a_list_is_read_again_when_the_server_says_that_it_changed(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        assert "files__grown" not in await client.named()
        await client.named()
        assert len([one for one in client.heard() if one.get("method") == "tools/list"]) == 1
        await client.use("grow")
        assert "files__grown" in await client.named()


@pytest.mark.parametrize("fault", ["old", "banner", "loud", "modern"])
async def test_these_servers_can_be_used(tmp_path: Path, fault: str) -> None:
    """An old one, one that greets on the wrong stream, one that complains much, one without a handshake."""
    async with program(tmp_path, fault) as client:
        assert await client.use("echo", text="x") == ToolAnswer("echo: x")


async def test_a_server_without_tools_offers_none(tmp_path: Path) -> None:
    async with program(tmp_path, "toolless") as client:
        assert await client.named() == {}
        assert "tools/list" not in [one.get("method") for one in client.heard()]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("fails", "the MCP server 'files' ended with exit code 3; its last lines: 'Error: no licence'"),
        ("ancient", "speaks '1999-01-01' of the protocol, which Onward does not"),
        ("garbage", "does not speak the protocol; it wrote text that is not a message to its standard "),
    ],
)
async def test_a_server_that_cannot_be_used_says_why_in_one_sentence(
    tmp_path: Path, fault: str, told: str
) -> None:
    async with program(tmp_path, fault) as client:
        with pytest.raises(ServerFailed) as failed:
            await client.named()
        assert told in str(failed.value)
        assert "\n" not in str(failed.value)


async def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    clock = ManualClock(autojump=False)
    async with program(tmp_path, "mute", "banner", clock=clock, time_limit_s=5) as client:
        listing = asyncio.create_task(client.named())
        await client.until_heard(lambda one: one.get("method") == "initialize")
        for _ in range(5):
            await asyncio.sleep(0)  # what it printed before is read
        clock.advance(6)
        with pytest.raises(ServerFailed, match=r"did not answer initialize within 5 s; it wrote .*Listening"):
            await listing
        assert "notifications/cancelled" not in [one.get("method") for one in client.heard()]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"command": ["no-such-program"]}, "cannot be started: No such file or directory (no-such-program)"),
        ({"cwd": "/no/such/place"}, "cannot be started: No such file or directory (/no/such/place)"),
        ({"command": "exit 5"}, "ended with exit code 5"),
        ({"command": "kill -9 $$"}, "was ended by signal 9"),
        ({"command": "exec >&-; sleep 1000"}, "closed its standard input or output"),
    ],
)
async def test_a_program_that_is_no_server_says_why(
    tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    async with program(tmp_path, **settings) as client:
        with pytest.raises(ServerFailed) as failed:
            await client.named()
        assert told in str(failed.value)


async def test_a_use_that_a_dying_server_may_have_done_is_in_doubt(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        with pytest.raises(
            CallTimedOut, match=r"it is unknown whether call 'm1.t1' was done: .*out of cheese"
        ):
            await client.use("crash")
        assert await client.use("echo", text="back") == ToolAnswer("echo: back")
        assert len(client.pids()) == 2


async def test_a_use_that_may_be_repeated_fails_for_the_model(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        tool = (await client.named())["files__crash"]
        rules = replace(tool.rules, repeatable=True)
        with pytest.raises(ToolRefused, match=r"ended with exit code 7; its last lines: .*\.$"):
            await tool.run(ToolUse(a_step(), {}, "m1.t1", rules))


async def test_a_server_that_died_between_two_uses_is_started_again(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        tool = (await client.named())["files__echo"]
        (first,) = client.pids()
        processes = Processes([first])
        os.kill(first, signal.SIGKILL)
        assert processes.survivors(10) == []
        processes.close()
        while True:  # its end is noticed soon; until then a use of it is in doubt
            try:
                assert await used(tool, {"text": "x"}) == ToolAnswer("echo: x")
                break
            except CallTimedOut:
                pass
        assert len(client.pids()) == 2


async def test_a_use_that_takes_too_long_is_cancelled_at_the_server(tmp_path: Path) -> None:
    clock = ManualClock(autojump=False)
    async with program(tmp_path, clock=clock) as client:
        using = asyncio.create_task(client.use("hang", time_limit_s=5))
        asked = await client.until_heard(lambda one: one.get("method") == "tools/call")
        clock.advance(6)
        with pytest.raises(CallTimedOut, match=r"time limit of 5 s"):
            await using
        told = await client.until_heard(lambda one: one.get("method") == "notifications/cancelled")
        assert told["params"]["requestId"] == asked["id"]
        assert await client.use("echo", text="x") == ToolAnswer("echo: x")
        assert len(client.pids()) == 1


async def test_a_use_that_is_answered_with_no_message_says_so_when_it_is_given_up(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        with pytest.raises(CallTimedOut, match=r"limit of 0.5 s; it wrote text that is not a .*receipt 17"):
            await client.use("mumble", time_limit_s=0.5)


async def test_a_cancelled_use_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        using = asyncio.create_task(client.use("hang"))
        asked = await client.until_heard(lambda one: one.get("method") == "tools/call")
        using.cancel()
        await asyncio.wait([using])
        told = await client.until_heard(lambda one: one.get("method") == "notifications/cancelled")
        assert told["params"]["requestId"] == asked["id"]


async def test_a_line_without_end_ends_the_connection(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        with pytest.raises(CallTimedOut, match="sent a line of more than 8 MiB"):
            await client.use("huge")
        assert await client.use("echo", text="x") == ToolAnswer("echo: x")


async def test_an_answer_to_another_request_is_passed_over(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        assert await client.use("wrong_id", text="x") == ToolAnswer("wrong_id: x")


async def test_what_the_server_asks_is_refused_and_a_ping_answered(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        assert await client.use("ask") == ToolAnswer("ask: ")
        refused = await client.until_heard(lambda one: one.get("id") == "s-1")
        assert refused["error"]["code"] == -32601
        assert (await client.until_heard(lambda one: one.get("id") == "s-2"))["result"] == {}


async def test_an_error_of_the_protocol_is_an_answer(tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        answer = await client.use("refuse")
        assert answer == ToolAnswer("the tool failed: Unknown tool: refuse", is_error=True)

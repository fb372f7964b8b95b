"""Programs that we talk to: what they hear and say, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from onward.errors import InvalidInput
from onward.process import Dialogue, SystemSpawn
from tests.engine.processes import ENV, FAMILY, Post


class Heard:
    """What a program printed."""

    def __init__(self) -> None:
        self.data, self._more = b"", asyncio.Event()
        self.is_over = False

    def hear(self, data: bytes) -> None:
        self.data += data
        self.is_over = not data
        self._more.set()

    async def until(self, count: int) -> bytes:
        """Wait for so many bytes, or the end."""
        while len(self.data) < count and not self.is_over:
            self._more.clear()
            await self._more.wait()
        return self.data


async def talk(spawn: SystemSpawn, heard: Heard, *words: str) -> Dialogue:
    return await spawn.talk(words, env=ENV, hear=heard.hear)


async def test_a_program_hears_us_and_we_hear_it(spawn: SystemSpawn) -> None:
    heard = Heard()
    cat = await talk(spawn, heard, "cat")
    for number in range(3):
        line = b"line %d\n" % number
        await cat.write(line)
        assert (await heard.until((number + 1) * len(line))).endswith(line)
    await cat.close(5)
    assert heard.is_over


async def test_much_more_than_a_pipe_holds_goes_both_ways(spawn: SystemSpawn) -> None:
    heard, data = Heard(), os.urandom(1 << 20)
    cat = await talk(spawn, heard, "cat")
    await cat.write(data)
    assert await heard.until(len(data)) == data
    await cat.close(5)


async def test_what_a_cancelled_caller_wrote_is_sent_whole(spawn: SystemSpawn) -> None:
    """Half a line would spoil every message after it."""
    heard = Heard()
    slow = await talk(spawn, heard, "sh", "-c", "read line; cat")
    first = b"x" * (1 << 18) + b"\n"
    writing = asyncio.create_task(slow.write(b"go" + first))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait([writing])
    await slow.write(b"second\n")
    assert await heard.until(7) == b"second\n"
    await slow.close(5)


async def test_the_end_of_a_program_is_noticed(spawn: SystemSpawn) -> None:
    heard = Heard()
    brief = await talk(spawn, heard, "sh", "-c", "exec <&-; echo bye; echo why >&2; exit 3")
    assert await heard.until(5) == b"bye\n"
    await brief.wait_ended()
    assert brief.status is not None
    assert os.waitstatus_to_exitcode(brief.status) == 3
    assert not brief.is_running
    with pytest.raises(BrokenPipeError):
        await brief.write(b"x" * (1 << 20))
    with pytest.raises(BrokenPipeError):
        await brief.write(b"x")
    await brief.close(5)
    assert brief.said == "why\n"


async def test_a_program_that_is_missing_says_so_when_it_ends(spawn: SystemSpawn) -> None:
    heard = Heard()
    missing = await talk(spawn, heard, "no-such-program")
    await missing.wait_ended()
    assert missing.failure == (errno.ENOENT, "shell")
    await missing.close(5)
    with pytest.raises(InvalidInput, match="NUL"):
        await talk(spawn, heard, "a\0b")


async def test_only_the_end_of_what_it_complains_is_kept(spawn: SystemSpawn) -> None:
    heard = Heard()
    loud = await talk(
        spawn, heard, "sh", "-c", "yes complaint | head -c 1000000 >&2; echo last >&2; echo done"
    )
    assert await heard.until(5) == b"done\n"
    await loud.close(5)
    assert len(loud.said) <= 8192
    assert loud.said.endswith("last\n")


@pytest.mark.crash
async def test_nothing_that_it_started_is_left(spawn: SystemSpawn, post: Post) -> None:
    heard = Heard()
    family = await talk(spawn, heard, "sh", "-c", f"({FAMILY}) > {post.path}; trap '' TERM; cat; sleep 1000")
    processes = await post.receive(3)
    await family.close(0.1)
    assert processes.survivors(10) == []


async def test_a_cancelled_close_still_ends_it(spawn: SystemSpawn, tmp_path: Path) -> None:
    heard = Heard()
    stuck = await talk(spawn, heard, "sh", "-c", "echo up; sleep 1000")
    await heard.until(3)
    closing = asyncio.create_task(stuck.close(60))
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert not stuck.is_running

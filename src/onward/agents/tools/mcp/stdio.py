"""A server that is a child process of ours: one message a line, through its standard input and output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from contextlib import suppress

from onward.agents.tools.mcp import protocol as mcp
from onward.agents.tools.mcp.settings import McpServer
from onward.errors import InvalidInput, SpawnFailed
from onward.process import Dialogue, SystemSpawn

GRACE_S = 2.0
LAST_WORDS_S = 1.0
GARBAGE_MAX = 100
"""So many lines of a server that logs to the wrong stream are passed over."""
REPLIES_MAX = 100


class StdioChannel:
    """Starts the program of a server and talks to it."""

    has_headers = False

    def __init__(self, server: McpServer, dialogue: Dialogue | None = None) -> None:
        self._name = f"the MCP server {server.name!r}"
        self._server, self._dialogue = server, dialogue
        self._rest = bytearray()
        self._pending: dict[int, asyncio.Future[mcp.ServerAnswer]] = {}
        self._listen: mcp.Listen = lambda told: None
        self._failed: mcp.ServerFailed | None = None
        self._garbage, self._garbage_count = "", 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent = asyncio.Event()

    async def open(self, spawn: SystemSpawn, *, env: Mapping[str, str], cwd: str) -> StdioChannel:
        """Start the program."""
        try:
            self._dialogue = await spawn.talk(self._server.command, env=env, cwd=cwd, hear=self._hear)
        except (SpawnFailed, InvalidInput) as error:
            raise mcp.ServerFailed(f"{self._name} cannot be started: {error}", is_lost=True) from None
        self._start(self._watch(self._dialogue))
        return self

    async def exchange(self, sending: mcp.OutgoingRequest, listen: mcp.Listen) -> mcp.ServerAnswer:
        """As the port says."""
        self._listen = listen
        answer: asyncio.Future[mcp.ServerAnswer] = asyncio.get_running_loop().create_future()
        self._pending[sending.id] = answer
        try:
            await self.tell(sending.body, {})
            return await answer
        finally:
            self._pending.pop(sending.id, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # taken, even if nobody waits for it any more

    async def tell(self, message: bytes, headers: Mapping[str, str]) -> None:
        """As the port says."""
        if self._failed is not None:
            raise mcp.ServerFailed(str(self._failed), is_lost=True)
        assert self._dialogue is not None, "it is opened first"
        try:
            await self._dialogue.write(message + b"\n")
        except BrokenPipeError:
            why = await self._how_ended(self._dialogue)
            raise mcp.ServerFailed(f"{self._name} {why}", is_lost=True) from None

    def tell_soon(self, message: bytes, headers: Mapping[str, str]) -> None:
        """As the port says."""
        if len(self._tasks) < REPLIES_MAX:
            self._start(self._try_to_tell(message))
        else:
            self._fail("does not read the replies to its requests")

    async def close(self) -> None:
        """As the port says."""
        dialogue, self._dialogue = self._dialogue, None
        self._failed = self._failed or mcp.ServerFailed(f"{self._name} was closed", is_lost=True)
        for task in [*self._tasks]:
            task.cancel()
        if dialogue is not None:
            await dialogue.close(GRACE_S)

    def _hear(self, data: bytes) -> None:
        if not data:
            self._silent.set()
            return
        *lines, rest = data.split(b"\n")
        if lines and self._rest:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += rest
        for line in lines:
            self._line(line)
        if len(self._rest) > mcp.MESSAGE_BYTES_MAX:
            self._rest.clear()
            self._fail(f"sent a line of more than {mcp.MESSAGE_BYTES_MAX >> 20} MiB")

    def _line(self, line: bytes) -> None:
        if self._failed is not None or not line.strip():
            return
        if len(line) > mcp.MESSAGE_BYTES_MAX:
            self._fail(f"sent a line of more than {mcp.MESSAGE_BYTES_MAX >> 20} MiB")
            return
        try:
            messages = mcp.read_messages(line)
        except mcp.NotAMessage:
            self._garbage = self._garbage or mcp.plain(line[:400].decode("utf-8", "replace"), 80)
            self._garbage_count += 1
            if self._garbage_count > GARBAGE_MAX:
                self._fail(f"does not speak the protocol{self.noted}")
            return
        for message in messages:
            match message:
                case mcp.ServerAnswer(id=int() as id) if id in self._pending and not self._pending[id].done():
                    self._pending[id].set_result(message)
                case mcp.ServerAnswer():
                    pass  # to a request that nobody waits for any more, or to none of ours
                case mcp.ServerRequest():
                    self.tell_soon(mcp.reply_to(message), {})
                case _:
                    self._listen(message)

    async def _watch(self, dialogue: Dialogue) -> None:
        """Fail whoever waits when the program ends, or closes its output."""
        ended = asyncio.ensure_future(dialogue.wait_ended())
        silent = asyncio.ensure_future(self._silent.wait())
        try:
            await asyncio.wait([ended, silent], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([ended, silent], timeout=LAST_WORDS_S)
            self._fail(await self._how_ended(dialogue))
        finally:
            ended.cancel()
            silent.cancel()

    async def _how_ended(self, dialogue: Dialogue) -> str:
        """How the program ended, and what it said last."""
        with suppress(TimeoutError):
            await asyncio.wait_for(dialogue.wait_ended(), LAST_WORDS_S)
        if dialogue.failure is not None:
            number, what = dialogue.failure
            named = self._server.cwd if what == "directory" else self._server.command[0]
            return f"cannot be started: {os.strerror(number)} ({named}); check its command and cwd"
        told = "closed its standard input or output"
        if dialogue.status is not None:
            code = os.waitstatus_to_exitcode(dialogue.status)
            told = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        lines = [line for line in dialogue.said.splitlines() if line.strip()]
        last = f"; its last lines: {mcp.plain(lines[-1], 300)!r}" if lines else ""
        return f"{told}{self.noted}{last}"

    @property
    def noted(self) -> str:
        """As the port says."""
        if not self._garbage:
            return ""
        return f"; it wrote text that is not a message to its standard output: {self._garbage!r}"

    def _fail(self, what: str) -> None:
        """The connection is of no use any more, and `what` says why."""
        if self._failed is not None:
            return
        self._failed = mcp.ServerFailed(f"{self._name} {what}", is_sent=True, is_lost=True)
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(self._failed)

    async def _try_to_tell(self, message: bytes) -> None:
        with suppress(mcp.ServerFailed):
            await self.tell(message, {})

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

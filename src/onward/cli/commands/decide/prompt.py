"""Asking a person at the terminal, in a way that a signal can end."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Callable

from onward.cli.print.gates import gate_lines
from onward.cli.print.output import Output
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput
from onward.machine.decide.requests import decision
from onward.model.gate import Answer
from onward.model.run import Gate, Run
from onward.pipeline.gate import FREEFORM
from onward.read.view import view_gate

CHUNK = 4096
LINE_BYTES_MAX = 1024 * 1024


class Lines:
    """Lines of a descriptor, read through the event loop: nothing blocks, and nothing outlives the wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = b""
        self._is_over = False

    async def next(self, stop: StopSwitch) -> str | None:
        """The next line without its end; None when there is no more, or as soon as `stop` is asked for.

        A line that is too long is refused with `InvalidInput`, and nothing more is read.
        """
        while b"\n" not in self._read and not self._is_over:
            if len(self._read) > LINE_BYTES_MAX:
                raise InvalidInput(
                    f"the answer is longer than {LINE_BYTES_MAX:,} bytes; the gate stays open."
                )
            if not await self._readable(stop):
                return None
            self._take()
        line, newline, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace") if line or newline else None

    def forget_what_was_typed_ahead(self) -> None:
        """At a terminal, a key that was hit before the question was shown is no answer to it."""
        if os.isatty(self._descriptor):
            self._read = b""
            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def _take(self) -> None:
        try:
            chunk = os.read(self._descriptor, CHUNK)
        except OSError:  # the terminal is gone
            chunk = b""
        self._read += chunk
        self._is_over = not chunk

    async def _readable(self, stop: StopSwitch) -> bool:
        """Whether there is something to read before somebody asks to stop."""
        if stop.reason is not None:
            return False
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[bool] = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _settle(ready, True))
        except PermissionError:
            return True  # an ordinary file, which never keeps anybody waiting
        asked_to_stop = _settle(ready, False)
        stop.listen(asked_to_stop)
        try:
            return await ready
        finally:
            stop.unlisten(asked_to_stop)
            loop.remove_reader(self._descriptor)


def _settle(future: asyncio.Future[bool], value: bool) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(value)


class Prompt:
    """Asks whoever sits at the terminal. The end of input, or a signal, leaves the gate open."""

    name = "user"

    def __init__(self, out: Output, stop: StopSwitch) -> None:
        self._out, self._stop = out, stop
        self._lines = None if sys.stdin is None else Lines(sys.stdin.fileno())

    async def ask(self, run: Run, gate: Gate) -> Answer:
        if self._lines is not None:
            self._lines.forget_what_was_typed_ahead()
        for line in gate_lines(view_gate(gate), is_whole=True):
            self._out.say(line)
        while self._lines is not None:
            self._out.say(asking_line(gate), end="")
            try:
                typed = await self._lines.next(self._stop)
            except InvalidInput as error:
                self._lines = None
                self._out.say(f"\n{error}")
                break
            if typed is None:
                break
            answer = Answer(typed.strip() or default_key(gate))
            try:
                decision(gate, answer, by=self.name)
            except InvalidInput as error:
                if answer.choice:
                    self._out.say(str(error))
                continue
            return answer
        self._out.say()
        return Answer.skip()

    async def inform(self, message: str, stage: str) -> None:
        self._out.say(f"\n{message}")


def default_key(gate: Gate) -> str:
    """What the empty line chooses; where words are asked for it is no answer."""
    return "" if gate.type == FREEFORM else gate.default


def asking_line(gate: Gate) -> str:
    """What stands before the cursor: the keys, and what the empty line means."""
    default = f"Enter for {default_key(gate)}" if default_key(gate) else ""
    keys = "" if gate.type == FREEFORM else "/".join(choice.key for choice in gate.choices)
    offered = "; ".join(filter(None, (keys, default)))
    return f"your answer ({offered}): " if offered else "your answer: "

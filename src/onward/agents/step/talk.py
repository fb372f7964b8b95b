"""The conversation of an agent's step while it runs: where it begins, and what is said next.

A step that was asked before continues its stored conversation. Its inputs are not computed again: they would
differ, because the run's past has grown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from onward.agents.model.request import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, user
from onward.agents.step.thread import Thread, read_thread
from onward.agents.step.using import UNKNOWN, result_of
from onward.handlers.calls import StepPast
from onward.handlers.port import StepContext

AGAIN = "This step failed: {why}. Try again. What tools have done stays done; do not repeat it."


class Asked(Protocol):
    """A conversation in which something is asked."""

    async def asking(self) -> Thread:
        """The conversation, with what waits for an answer at its end."""
        ...

    def answered(self, thread: Thread) -> None:
        """The conversation has an answer at its end."""
        ...


class Talk:
    """The conversation of one attempt. It is read when something is asked, and not before.

    `summary` tells a step that begins a conversation what came before it.
    """

    def __init__(
        self, step: StepContext, known: StepPast, summary: Callable[[StepContext], Awaitable[str]]
    ) -> None:
        self._step, self._known, self._summary = step, known, summary
        self._thread: Thread | None = None
        self._next: Message | None = None

    def follow(self, message: Message) -> None:
        """What is said next, unless it is said already in the stored conversation."""
        self._next = message

    def answered(self, thread: Thread) -> None:
        """The conversation has an answer at its end."""
        self._thread = thread

    async def asking(self) -> Thread:
        """The conversation, with what waits for an answer at its end."""
        thread = self._thread = self._thread or await self._begun()
        if self._next is not None and not thread.is_asking:
            thread.add(self._next)
        self._next = None
        return thread

    async def _begun(self) -> Thread:
        """The step's stored conversation; for a new step, that of its thread, and what it asks."""
        step, known, recorder = self._step, self._known, self._step.recorder
        if known.thread:
            thread = await read_thread(recorder.content, known.thread, step.redactor)
            if not known.definition:
                await self._try_again(thread)
            return thread
        earlier = recorder.thread_of(step.thread) if step.thread else ""
        before = await read_thread(recorder.content, earlier, step.redactor)
        preamble = "" if before.messages else await self._summary(step)
        told = instructed(step.steering)
        before.add(user("\n\n".join(filter(None, (preamble, step.prompt, told)))))
        return before

    async def _try_again(self, thread: Thread) -> None:
        """Continue after a failure: the model is told of it, and what became of the calls it asked for."""
        last = thread.messages[-1]
        calls = [part for part in last.parts if isinstance(part, ToolCall)]
        if isinstance(last, AssistantMessage) and calls:
            thread.add(ToolMessage(tuple(await self._owed(calls))))
        why = self._known.failure or "its attempt was ended"
        told = instructed(self._step.steering)
        thread.add(user("\n\n".join(filter(None, (AGAIN.format(why=why.rstrip(".")), told)))))

    async def _owed(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """What is known of the calls of the last answer, which the model has not seen yet."""
        done = await self._step.recorder.dropped()
        found = {
            int(place): value
            for call, value in done.items()
            if (place := call.rpartition(".t")[2]).isdecimal()
        }
        return [
            result_of(call, found[position])
            if position in found
            else ToolResult(call.id, UNKNOWN, is_error=True)
            for position, call in enumerate(calls, start=1)
        ]


def instructed(texts: Sequence[str]) -> str:
    """What people told the agent while the run was running."""
    return "\n\n".join(f"Instruction from the operator: {text}" for text in texts)

"""Calls that are recorded: made once, and answered from the log ever after.

A call that may be repeated is one append, its answer. One that must not be repeated is on disk before it
begins, so that a crash in the middle of it is noticed and a person decides; so is one that reserves from a
limit or streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from onward.engine.calls.asking import check_kind, decision_of, take_answer
from onward.engine.calls.effects import effect
from onward.engine.calls.functions import execute_in_time
from onward.engine.calls.holding import Holding
from onward.engine.calls.memory import CallMemory, read_memory, value_of
from onward.engine.calls.parts import CallParts
from onward.engine.calls.trying import CallTries
from onward.engine.calls.under_way import UnderWay
from onward.engine.messages.stream import MessageStream
from onward.errors import InvalidInput
from onward.handlers.calls import CallOptions, StepPast, StepQuestion
from onward.handlers.user_functions import Functions
from onward.model.call import LimitHit, call_key
from onward.model.events import StepStarted
from onward.model.gate import Decision


class CallRecorder:
    """The calls of one attempt. `functions` are those of the user that run in it."""

    def __init__(
        self, parts: CallParts, started: StepStarted, functions: Functions, holding: Holding
    ) -> None:
        self._parts, self._started, self._functions = parts, started, functions
        self._holding, self._under_way = holding, UnderWay(started.step, holding)
        self._tries = CallTries(parts, started, functions, holding)
        self._memory: asyncio.Task[CallMemory] | None = None

    def key_of(self, call: str) -> str:
        """The idempotency key of a call."""
        run, step = self._parts.appender.run, self._started.step
        calls = run.open_steps[step].calls if step in run.open_steps else None
        return call_key(run.id, step, call, 0 if calls is None else calls.generation)

    async def call(
        self, key: str, function: Callable[..., Any], arguments: Sequence[Any], options: CallOptions
    ) -> Any:
        """What the function answered: now, or when this call was made before."""
        self._tries.check_open()
        outer = self._under_way.outer(key)
        memory = await self._remembered()
        answered = memory.answers.get(key)
        if answered is not None:
            check_kind(answered, is_question=False)
            return await value_of(memory, self._parts.appender.run.id, answered)
        self._under_way.check_idle(key)
        if outer is None:
            await self._holding.boundary()
        with self._under_way.one(key, outer):
            run = partial(self._run, key, function, arguments, options)
            return await self._tries.make(memory, key, run, options)

    async def ask(self, key: str, question: StepQuestion) -> Decision:
        """What a person answered. Until somebody has, the attempt ends here and the run waits."""
        self._tries.check_open()
        outer = self._under_way.outer(key)
        memory = await self._remembered()
        answered = memory.answers.get(key)
        if answered is None:
            self._under_way.check_idle(key)
            if outer is None and not self._holding.is_asking:
                await self._holding.boundary()
            with self._under_way.one(key, outer):
                await self._parts.trust()
                parts, number = self._parts, memory.tries.get(key, 0) + 1
                answered = await take_answer(
                    parts.appender, self._holding, self._started, key, number, question
                )
                memory.next_try(key)
                memory.note(answered)
        check_kind(answered, is_question=True)
        recorded = await value_of(memory, self._parts.appender.run.id, answered)
        return decision_of(question, answered, recorded)

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """The same for an effect: what it raised is an answer, too, unless `only_success`."""
        opened = self._parts.appender.run.open_steps.get(self._started.step)
        earlier = self._parts.effects if opened is not None and opened.starts > 1 else None
        return await effect(self, self._functions, earlier, key, function, only_success=only_success)

    def call_from_thread(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The same for a plain function, which runs in a thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(call, self._parts.loop).result()
        call.close()
        raise InvalidInput(
            "call_sync and ask_sync are for plain functions; in an async function write "
            "`await step.call(…)` or `await step.ask(…)`."
        )

    async def has(self, call: str) -> bool:
        """Whether a call has been answered."""
        return call in (await self._remembered()).answers

    async def past(self) -> StepPast:
        """What earlier attempts of the step asked, if their answers still count."""
        return (await self._remembered()).past

    async def dropped(self) -> dict[str, Any]:
        """What the tools of the last round answered, by call, if the step is tried anew since."""
        memory, run_id = await self._remembered(), self._parts.appender.run.id
        return {call: await value_of(memory, run_id, found) for call, found in memory.dropped.items()}

    def instructions(self) -> tuple[str, ...]:
        """What people have told the run's agents and no step has taken yet."""
        return self._parts.appender.run.steering

    async def content(self, hash: str) -> bytes | None:
        """Stored content, such as a message of a conversation."""
        return await (await self._remembered()).content.find(hash)

    async def partial(self, call: str) -> str:
        """The text that came of a call before its last tries failed or were lost; empty if none did."""
        memory = await self._remembered()
        for message in reversed(memory.messages.get(call, ())):
            text = await self._parts.flusher.text_of(message)
            if text:
                return text
        return ""

    def thread_of(self, key: str) -> str:
        """The end of the conversation with this key, which earlier steps had; empty if there is none."""
        return self._parts.appender.run.threads.get(key, "")

    async def hold(
        self, reason: str, detail: str, until_us: int | None = None, limit: LimitHit | None = None
    ) -> None:
        """End the attempt between two calls; the run continues it later. This never returns."""
        self._holding.ask(reason, detail, until_us, limit)
        await self._holding.boundary()

    async def wait_s(self, seconds: float) -> None:
        """Wait before a call is made again; ends early when the attempt does."""
        await self._tries.wait_s(seconds)

    async def is_held(self) -> bool:
        """Whether the attempt was ended between two calls, and its result does not count."""
        return await self._holding.is_held()

    def close(self) -> None:
        """The attempt is over."""
        self._holding.close()

    async def _remembered(self) -> CallMemory:
        if self._memory is None:
            parts = self._parts
            self._memory = asyncio.create_task(
                read_memory(parts.journal, parts.blobs, parts.appender.run, self._started.step)
            )
        return await asyncio.shield(self._memory)

    async def _run(
        self,
        key: str,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        options: CallOptions,
        stream: MessageStream | None,
    ) -> Any:
        arguments = arguments if stream is None else (*arguments, stream)
        with self._under_way.inside(key, repeatable=options.repeatable):
            return await execute_in_time(
                self._parts.clock, self._functions, key, function, arguments, options
            )

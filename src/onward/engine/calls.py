"""Recorded calls inside a step: each is made once, and answered from the log ever after.

A call that may be repeated is one append, its answer. One that must not be repeated is on disk before it
begins, so that a crash in the middle of it is noticed and a person decides; so is one that reserves from a
limit or streams.

`CallRecorder` is what a handler sees as its `Recorder`; `CallTries` makes a call and records each try. Two
kinds of calls are special. The answer of a question is a person's: the question is a gate, and the attempt
is held until it is decided. An effect of a step must not be repeated, and its exception is an answer, too.
(Effects outside steps are in `engine/effects.py`.)

`call_log` has the events of a try and the calls that were answered before, `hold` stops an attempt between
two calls. What may be written is decided and folded in `machine/`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from onward import errors
from onward.clock import TookTooLong, within
from onward.engine.agent_log import AgentPast
from onward.engine.appender import Appender, EngineParts
from onward.engine.call_log import CallMemory, OneTry, read_memory, value_of
from onward.engine.claims import Hold
from onward.engine.effects import in_doubt
from onward.engine.flow_log import read_history
from onward.engine.hold import AttemptHold, UnderWay
from onward.engine.messages import MessageStream
from onward.engine.persist import unbroken
from onward.handlers.calls import (
    IN_MEMORY_US,
    AgentCalls,
    Answered,
    CallOptions,
    ChildAsked,
    ChildEnded,
    PastCall,
    Recorder,
    StepPast,
    StepQuestion,
)
from onward.handlers.port import StepContext
from onward.handlers.user_functions import Functions, of_call
from onward.machine.decide.calls import (
    call_in_doubt,
    finish_call,
    lose_call,
    open_attempt,
    question_changed,
    start_call,
)
from onward.model.call import (
    CallFinished,
    CallKind,
    CallLost,
    CallStarted,
    CallStatus,
    LimitHit,
    Streamed,
    call_key,
    gate_of_call,
)
from onward.model.chat import message_id
from onward.model.events import Event, RunningCall, StepStarted
from onward.model.gate import Decision
from onward.model.limits import is_over, scopes_now
from onward.model.result import REASON_MAX, as_value, check_effect_key, excerpt, unpack_effect
from onward.model.run import Run
from onward.model.stored import check_returns, is_awaitable

GATE, TOOL = CallKind.GATE.value, CallKind.TOOL.value
LOOK_S = 1.0
"""How often a flow looks whether its question was answered, while others of its branches work."""
EFFECT = "effect:"
"""What the calls that are effects are named by, so that no other call has the same key."""


class CallParts(msgspec.Struct, frozen=True):
    """What the calls of one held run need."""

    engine: EngineParts
    appender: Appender
    hold: Hold
    loop: asyncio.AbstractEventLoop

    async def trust(self) -> None:
        """Make sure of the lease: after its deadline, the database decides before anything is done."""
        keeper = self.engine.keeper
        if not keeper.is_trusted(self.hold):
            await keeper.regain(self.hold)


class CallRequest(msgspec.Struct, frozen=True):
    """A call that a handler asks for."""

    key: str
    function: Callable[..., Any]
    arguments: Sequence[Any]
    options: CallOptions


class CallRecorder:
    """The calls of one attempt. `functions` are those of the user that run in it."""

    def __init__(
        self, parts: CallParts, started: StepStarted, functions: Functions, holding: AttemptHold
    ) -> None:
        self._parts, self._started, self._functions = parts, started, functions
        self._holding, self._under_way = holding, UnderWay(started.step, holding)
        self._tries = CallTries(parts, started, functions, holding, self._under_way)
        self._memory: asyncio.Future[CallMemory] | None = None
        self._agents: Mapping[str, AgentPast] = {}

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
            tried = await self._tries.make(memory, CallRequest(key, function, arguments, options))
        if tried.error is not None:
            raise tried.error
        return tried.answer

    async def history(self) -> Sequence[PastCall]:
        """The calls that earlier attempts of a flow made, in the order in which they began."""
        engine, run = self._parts.engine, self._parts.appender.run
        found = await read_history(engine.journal, engine.blobs, run, self._started.step)
        self._memory = asyncio.get_running_loop().create_future()
        self._memory.set_result(found.memory)
        self._agents = found.agents
        return found.calls

    def of_agent(self, calls: AgentCalls) -> Recorder:
        """What records the calls of an agent in a flow, which are answered by their keys."""
        from onward.engine.agent_calls import AgentRecorder  # here, as most steps have none

        past = self._agents.get(calls.key) or AgentPast.empty(self._parts.engine.blobs)
        return AgentRecorder(self, calls, past)

    async def stored(self, past: PastCall) -> Any:
        """What a call answered that the log has."""
        if not past.value_blob:
            return past.value
        return await value_of(await self._remembered(), self._parts.appender.run.id, past)

    async def answer(
        self, key: str, function: Callable[..., Any], arguments: Sequence[Any], options: CallOptions
    ) -> Answered:
        """Make a call that a flow's history does not answer. What its function raises is an answer, too."""
        self._tries.check_open()
        memory = await self._remembered()
        self._under_way.check_idle(key)
        await self._holding.boundary()
        with self._under_way.one(key, None):
            tried = await self._tries.make(memory, CallRequest(key, function, arguments, options))
        if tried.error is not None:
            ended = tried.finished
            return Answered(None, tried.at_us, ended.error, tried.error, ended.retry_at_us or 0)
        return Answered(tried.answer, tried.at_us)

    def now_us(self) -> int:
        """The time, which is never before the claim of the run."""
        return self._parts.appender.now_us()

    async def put(
        self, key: str, question: StepQuestion, patches: tuple[str, ...], *, is_inside: bool = False
    ) -> None:
        """Put a flow's question to people, if it was not yet; the flow goes on meanwhile.

        `is_inside`: a call that is under way asks it, and no hold comes before that call lets one.
        """
        appender, started = self._parts.appender, self._started
        gate = gate_of_call(started.step, key, 0)
        self._tries.check_open()
        known = appender.run.gates.get(gate)
        if known is not None and known.question != question.hash:
            raise question_changed(started.step, key)
        if known is not None:
            return
        if not is_inside:
            await self._holding.boundary()
        await self._parts.trust()
        opened = question.opened(gate, started.node, appender.now_us())
        opened = msgspec.structs.replace(opened, stays=True, patches=patches)

        def decide(run: Run) -> Sequence[Event]:
            open_attempt(run, started.step, started.attempt)
            return () if gate in run.gates else (opened,)

        await unbroken(appender.record(decide))

    async def taken(self, key: str, question: StepQuestion, patches: tuple[str, ...]) -> Answered | None:
        """What a person answered to a flow's question, recorded as its call's; None until somebody has."""
        appender, started = self._parts.appender, self._started
        self._tries.check_open()
        gate = appender.run.gates.get(gate_of_call(started.step, key, 0))
        if gate is None or gate.decided is None:
            return None
        finished = CallFinished(
            step=started.step,
            attempt=started.attempt,
            call=key,
            number=1,
            status=CallStatus.OK,
            type=GATE,
            value={**question.recorded(gate), "by": gate.by},
            by=gate.by,
            inputs=question.hash,
            patches=patches,
        )
        written = await unbroken(appender.write(partial(finish_call, finished=finished)))
        finished = next(event for event in written.events if isinstance(event, CallFinished))
        return Answered(finished.value, written.at_us)

    async def rest(self, until_us: int | None, *, looks: bool = False) -> None:
        """Wait until then, no longer than the attempt; `looks`: or until others may have written."""
        clock, appender = self._parts.engine.clock, self._parts.appender
        left_s = LOOK_S if until_us is None else (until_us - appender.now_us()) / 1_000_000
        await clock.wait_s(max(0.0, min(left_s, LOOK_S) if looks else left_s), self._holding.over)
        if self._holding.over.is_set():
            await asyncio.Event().wait()  # the attempt is over, and this is cancelled with it
        if looks:
            await appender.look()

    def park(
        self,
        detail: str,
        until_us: int | None,
        asked: Sequence[str],
        runs: Sequence[str] = (),
        *,
        is_stopped: bool = False,
    ) -> None:
        """End the attempt, because every branch of the flow waits: for a time, for answers, or for runs.

        `is_stopped`: all of these have stopped, and only a person continues them.
        """
        gates = [gate_of_call(self._started.step, key, 0) for key in asked]
        self._holding.park(detail, until_us, gates, runs, is_stopped=is_stopped)

    async def child(self, step: StepContext, asked: ChildAsked) -> ChildEnded:
        """Create a run for a call of a flow, or find it, and execute it or wait for it to its end."""
        from onward.engine.flow_child import FlowChild  # here, as few flows have one

        self._tries.check_open()
        child = FlowChild(self, self._parts, step, asked, self._holding, self._under_way)
        try:
            return await child.ended()
        finally:
            await child.close()

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
                answered = await self._take_answer(key, memory.tries.get(key, 0) + 1, question)
                memory.next_try(key)
                memory.note(answered)
        check_kind(answered, is_question=True)
        recorded = await value_of(memory, self._parts.appender.run.id, answered)
        return decision_of(question, answered, recorded)

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """The same for an effect: what it raised is an answer, too, unless `only_success`."""
        check_effect_key(key)
        opened = self._parts.appender.run.open_steps.get(self._started.step)
        if opened is not None and opened.starts > 1:  # older versions stored the effects of steps elsewhere
            found = await self._parts.engine.services.effects.find(self.key_of(key))
            if found is not None and found.result is None:
                raise in_doubt(found)
            if found is not None and found.result is not None:
                return as_value(key, unpack_effect(key, found.result))
        check_returns(function, f"the function of effect {key!r}")
        effect = _StepEffect(self._parts, self._functions, function, only_success)
        options = CallOptions(repeatable=False, type=CallKind.EFFECT.value, name=key)
        answered = await self.call(f"{EFFECT}{key}", effect.answer, (), options)
        if effect.raised is not None:
            raise effect.raised
        match answered:
            case {"error": str(error)} if len(answered) == 1:
                raise errors.EffectFailed(key, error, f"{EFFECT}{key}")
            case {"value": value} if len(answered) == 1:
                return value
        return answered  # as a person said it

    def call_from_thread(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The same for a plain function, which runs in a thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(call, self._parts.loop).result()
        call.close()
        raise errors.InvalidInput(
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
            text = await self._parts.engine.services.flusher.text_of(message)
            if text:
                return text
        return ""

    async def failures(self, call: str) -> tuple[str, ...]:
        """How the service failed in the tries of a call, in words; also in earlier attempts of the step."""
        return tuple((await self._remembered()).failures.get(call, ()))

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

    def still_running(self) -> tuple[RunningCall, ...]:
        """The calls of a flow whose functions outlived the attempt."""
        return self._tries.still_running()

    def close(self) -> None:
        """The attempt is over."""
        self._holding.close()

    async def _remembered(self) -> CallMemory:
        if self._memory is None:
            engine, run = self._parts.engine, self._parts.appender.run
            self._memory = asyncio.create_task(
                read_memory(engine.journal, engine.blobs, run, self._started.step)
            )
        return await asyncio.shield(self._memory)

    async def _take_answer(self, call: str, number: int, question: StepQuestion) -> CallFinished:
        """The answer to a question, recorded as that of its call.

        Without one the question is put to people, the attempt is held, and this never returns: the next time
        the handler comes here, there is an answer.
        """
        appender, started = self._parts.appender, self._started
        opened = open_attempt(appender.run, started.step, started.attempt)
        gate_id = gate_of_call(started.step, call, 0 if opened.calls is None else opened.calls.generation)
        gate = appender.run.gates.get(gate_id)
        if gate is not None and gate.question != question.hash:
            raise question_changed(started.step, call)
        if gate is None or gate.decided is None:
            await self._holding.wait_for_answer(call, gate_id, question)
        assert gate is not None
        finished = CallFinished(
            step=started.step,
            attempt=started.attempt,
            call=call,
            number=number,
            status=CallStatus.OK,
            type=GATE,
            value=question.recorded(gate),
            by=gate.by,
        )
        written = await unbroken(appender.record(partial(finish_call, finished=finished)))
        return next(event for event in written if isinstance(event, CallFinished))


class Tried(msgspec.Struct, frozen=True):
    """A try of a call that has ended, as it was written, and what its function raised."""

    finished: CallFinished
    at_us: int
    error: Exception | None = None

    @property
    def answer(self) -> Any:
        """What it answered: a JSON value, or bytes."""
        return self.finished.content if self.finished.is_bytes else self.finished.value


RETRY_S_FIRST, RETRY_S_MAX = 0.5, 30.0
ROOM_S = 1.0
"""How often to ask again for what others have reserved."""


class CallTries:
    """Tries the calls of one attempt. `functions` are those of the user that run in it."""

    def __init__(
        self,
        parts: CallParts,
        started: StepStarted,
        functions: Functions,
        holding: AttemptHold,
        under_way: UnderWay,
    ) -> None:
        self._parts, self._started, self._functions = parts, started, functions
        self._holding, self._under_way = holding, under_way
        self._of_flow: dict[str, OneTry] = {}
        """The tries of a flow's calls that are under way, or that have left a function running."""

    def still_running(self) -> tuple[RunningCall, ...]:
        """The calls of a flow whose functions outlived the attempt."""
        return tuple(
            one.running(self._functions.told(key))
            for key, one in self._of_flow.items()
            if self._functions.is_busy(key)
        )

    def check_open(self) -> None:
        """Refuse a call of an attempt that is over."""
        self._functions.check_open()
        open_attempt(self._parts.appender.run, self._started.step, self._started.attempt)

    async def wait_s(self, seconds: float) -> None:
        """Wait before a call is made again; ends early when the attempt does."""
        await self._parts.engine.clock.wait_s(seconds, self._holding.over)
        self.check_open()

    async def make(self, memory: CallMemory, call: CallRequest) -> Tried:
        """The last try of the function, which is tried as often as `options` allow.

        Before a long wait that of a flow is returned: the flow waits, and makes the call again.
        """
        key, of_flow = call.key, bool(call.options.inputs)
        tries = memory.retried.get(key, 0)
        while True:
            tries += 1
            is_last = tries > call.options.retries
            tried = await self._try(memory, call, None if is_last or not of_flow else tries)
            if tried.error is None or is_last:
                memory.retried.pop(key, None)
                return tried
            retry_at_us = tried.finished.retry_at_us
            if retry_at_us is None:
                await self.wait_s(self._pause_s(tries))
                continue
            memory.retried[key] = tries
            left_us = retry_at_us - self._parts.appender.now_us()
            if left_us >= IN_MEMORY_US:
                return tried
            await self.wait_s(max(0.0, left_us / 1_000_000))

    def _pause_s(self, tries: int) -> float:
        return min(RETRY_S_FIRST * 2.0 ** (tries - 1), RETRY_S_MAX) * (
            0.5 + self._parts.engine.dice.roll() / 2
        )

    def _lost(self) -> dict[str, int]:
        opened = self._parts.appender.run.open_steps.get(self._started.step)
        return {} if opened is None or opened.calls is None else opened.calls.lost

    async def _try(self, memory: CallMemory, call: CallRequest, tries: int | None) -> Tried:
        """One try of the call, and the record of its end. It says when the next follows if it fails after
        this many `tries`.

        Raises what kept it from beginning or from being recorded, and what leaves it in doubt.
        """
        await self._parts.trust()
        key, options = call.key, call.options
        number = memory.next_try(key)
        one, streamed = OneTry(self._started, key, number, options), self._streamed(key, number, options)
        if options.records_start:
            try:
                await self._start(one.started(streamed), options.steering)
            except (errors.LimitReached, errors.Refused):
                memory.tries[key] = number - 1  # it was not begun
                raise
            if streamed is not None:
                memory.begin(key, streamed.message)
        if options.inputs:
            self._of_flow[key] = one
            if self._functions.is_busy(key):
                await self._wait_for_earlier(key)
        began_s = self._parts.engine.clock.awake_s()
        with self._open(streamed) as stream:
            try:
                value = await self._run(call, stream)
                finished = await self._answered(one, value, began_s)
                if stream is not None:
                    await stream.drain()  # the end of a message comes after its text
                    finished = stream.with_text(finished)
            except errors.ResultLost:
                raise  # it is recorded
            except errors.UnfitResult as error:
                if not options.repeatable:
                    raise await self._result_lost(one, error) from None
                return await unbroken(self._failed(one, began_s, error, tries, stream))
            except errors.CallTimedOut as error:
                return await unbroken(self._too_late(one, began_s, error, tries))
            except SystemExit as exits:
                # As it is, it would end the event loop if the call has a task of its own.
                raised = RuntimeError(f"the function raised SystemExit: {errors.said(exits)}")
                if options.repeatable:
                    return await unbroken(self._failed(one, began_s, raised, tries, stream))
                await self._lose(one, raised)
                raise raised from None
            except Exception as error:
                if options.type == TOOL and not options.repeatable:
                    # All that a tool says is its answer. This is trouble of the run in the middle of its use.
                    await self._lose(one, error)
                    raise
                failed = await unbroken(self._failed(one, began_s, error, tries, stream))
                memory.note_failure(failed.finished)
                return failed
        # Even if the caller is cancelled now: it was answered, and must not be asked again.
        tried = await unbroken(self._written(finished))
        memory.note(tried.finished)
        return tried

    async def _wait_for_earlier(self, key: str) -> None:
        """Let no call of a flow begin beside its own function, which may be left of an earlier attempt."""
        if not await self._functions.wait_idle(key):
            raise errors.CallStillRunning(key, self._functions.told(key))

    async def _written(self, finished: CallFinished, error: Exception | None = None) -> Tried:
        """The end of a try as it was written, without secrets: a resumed step gets no other."""
        written = await self._parts.appender.write(
            partial(finish_call, finished=finished), together=self._holding.is_shared
        )
        finished = next(event for event in written.events if isinstance(event, CallFinished))
        return Tried(finished, written.at_us, error)

    def _since_us(self, began_s: float) -> int:
        return max(0, int((self._parts.engine.clock.awake_s() - began_s) * 1_000_000))

    def _streamed(self, key: str, number: int, options: CallOptions) -> Streamed | None:
        """The message that the text of the call is stored in, if there is a chat for it."""
        if not options.chat:
            return None
        run_id, step = self._parts.appender.run.id, self._started.step
        return Streamed(chat=options.chat, message=message_id(run_id, step, key, number))

    def _open(self, streamed: Streamed | None) -> AbstractContextManager[MessageStream | None]:
        """The message, once the start of its call is recorded. A refused flush means: ask for the lease."""
        if streamed is None:
            return nullcontext()
        lease = self._parts.hold.lease
        return self._parts.engine.services.flusher.open(streamed, run_id=lease.run_id, token=lease.token)

    async def _start(self, started: CallStarted, told: tuple[str, ...]) -> None:
        """Record the start; if others have reserved what is left of a limit, wait for it."""
        if started.call in self._lost():
            raise call_in_doubt(started.step, started.call)
        while True:
            try:
                decide = partial(start_call, started=started, told=told)
                await self._parts.appender.write(decide, together=self._holding.is_shared)
                return
            except errors.LimitReached as reached:
                now_us = self._parts.engine.clock.now_us()
                if started.reserved is not None and is_over(reached.scope, now_us):
                    scopes = scopes_now(started.reserved.scopes, now_us)
                    started = replace(started, reserved=replace(started.reserved, scopes=scopes))
                    continue  # it begins today, and counts there
                if not reached.fits_spent:
                    raise
            # Others have reserved what is left. They may be dead: then somebody must notice.
            services = self._parts.engine.services
            with services.waiting.one(), self._functions.stopwatch.standing():
                await services.sweep()
                await self.wait_s(ROOM_S)

    async def _failed(
        self,
        one: OneTry,
        began_s: float,
        error: Exception,
        tries: int | None,
        stream: MessageStream | None = None,
    ) -> Tried:
        if stream is not None:
            with suppress(errors.StoreError):  # what came of the answer stays visible, if the store takes it
                await stream.drain()
        retry_at_us = None
        if tries is not None:
            retry_at_us = self._parts.appender.now_us() + int(self._pause_s(tries) * 1_000_000)
        failed = one.failed(error, self._since_us(began_s), retry_at_us)
        failed = replace(failed, error=shortened(self._parts, failed.error))
        failed = failed if stream is None else stream.with_text(failed)
        return await self._written(failed, error)

    async def _answered(self, one: OneTry, value: Any, began_s: float) -> CallFinished:
        """The end of a try that returned `value`. What was done is done, also if that cannot be stored."""
        try:
            return one.answered(value, self._since_us(began_s))
        except errors.UnstorableValue as unstorable:
            if one.options.repeatable:
                raise
            raise await self._result_lost(one, unstorable) from None

    async def _result_lost(self, one: OneTry, error: errors.UnstorableValue) -> errors.ResultLost:
        """Record that a try which must not be repeated was done, and that its result is not known."""
        lost = await self._lose(one, error, is_done=True)
        return errors.ResultLost(
            f"call {one.key!r}", lost.why, f"what it answered: --continue --answer {one.key}=VALUE"
        )

    async def _lose(self, one: OneTry, error: Exception, *, is_done: bool = False) -> CallLost:
        """Record that a try which must not be repeated will never be answered."""
        lost = one.lost(error, is_done=is_done)
        lost = replace(lost, why=shortened(self._parts, lost.why))
        decide = partial(lose_call, lost=lost, attempt=self._started.attempt)
        await unbroken(self._parts.appender.record(decide))
        return lost

    async def _too_late(
        self, one: OneTry, began_s: float, error: errors.CallTimedOut, tries: int | None
    ) -> Tried:
        """A call that took too long failed; one that must not be repeated may have done its work."""
        if one.options.repeatable:
            return await self._failed(one, began_s, error, tries)
        await self._lose(one, error)
        raise error

    async def _run(self, call: CallRequest, stream: MessageStream | None) -> Any:
        """What the function returns within the call's time limit, if it has one; CallTimedOut after that.

        It gets the message that its text is stored in, if there is one. What a call of a flow runs is
        registered under that call.
        """
        arguments = call.arguments if stream is None else (*call.arguments, stream)
        key, options = call.key, call.options
        token = of_call.set(key) if options.inputs else None
        try:
            with self._under_way.inside(key, repeatable=options.repeatable):
                if options.time_limit_s is None:
                    returned = await execute(self._functions, call.function, *arguments)
                else:
                    returned = await self._in_time(call, arguments, options.time_limit_s)
        except BaseException as error:
            if token is not None and not self._functions.is_busy(key):
                self._of_flow.pop(key, None)
            elif token is not None and isinstance(error, asyncio.CancelledError):
                self._holding.leave(key)  # the attempt ends, and must not be held as if nothing were left
            raise
        finally:
            if token is not None:
                of_call.reset(token)
        self._of_flow.pop(key, None)
        return returned

    async def _in_time(self, call: CallRequest, arguments: Sequence[Any], limit_s: float) -> Any:
        """The same within a limit. One that swallows its cancellation has as long to return as the function
        of a step has."""
        clock, functions = self._parts.engine.clock, self._functions
        began_s = clock.awake_s()
        try:
            return await within(functions.attend(call.key, call.function(*arguments)), limit_s, clock)
        except TookTooLong:
            is_running = functions.is_busy(of_call.get())
            raise errors.CallTimedOut(call.key, limit_s, is_running=is_running) from None
        except Exception as error:
            if clock.awake_s() - began_s < limit_s:
                raise
            raise errors.CallTimedOut(call.key, limit_s) from error  # it failed because it was cancelled


def shortened(parts: CallParts, why: str) -> str:
    """Why a call failed, as it is recorded. Secrets are looked for in the whole, before it is cut."""
    return why if len(why) <= REASON_MAX else excerpt(parts.engine.journal.redactor.redact(why), REASON_MAX)


async def execute(functions: Functions, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns. A plain one is registered until it has ended."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    returned = await functions.call(function, *arguments)
    return await returned if is_awaitable(returned) else returned


def check_kind(finished: CallFinished, *, is_question: bool) -> None:
    """Refuse a key that a call and a question of one step share."""
    if (finished.type == GATE) is not is_question:
        raise errors.InvalidInput(
            f"{finished.call!r} is the key of both a call and a question of step {finished.step}; choose "
            "another key."
        )


def decision_of(question: StepQuestion, finished: CallFinished, recorded: Mapping[str, Any]) -> Decision:
    """A remembered answer. It counts only for the question that was asked."""
    if recorded["question"] != question.hash:
        raise question_changed(finished.step, finished.call)
    return question.decision(recorded, finished.by)


class _StepEffect(msgspec.Struct):
    """An effect of a step, as a call: what its function `raised` is an answer, too."""

    parts: CallParts
    functions: Functions
    function: Callable[[], Any]
    only_success: bool
    raised: Exception | None = None

    async def answer(self) -> dict[str, Any]:
        """Its value or its error, as they are recorded."""
        try:
            return {"value": await execute(self.functions, self.function)}
        except Exception as error:
            if self.only_success:
                raise
            self.raised = error
            return {"error": shortened(self.parts, errors.told(error))}

"""One attempt of a flow: its function runs from the beginning, and its history answers what it can.

A call is compared with the history first (`FlowRun.begin`). If the log has its answer, that is returned;
else the call is made and recorded. What ends the attempt (a pause, a lost lease, a call that the history
does not have) reaches the user's code only as `CancelledError`, and so do the calls made after it: no
`except Exception` of a user takes it for a failure of a step. Calls that are under way finish first.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import msgspec
from blake3 import blake3

from onward.errors import FlowChanged, InvalidInput, StepFailed, UnfitResult, UnstorableValue
from onward.flows.scope import Group, Scope
from onward.handlers.calls import IN_MEMORY_US, Answered, CallOptions, PastCall
from onward.handlers.port import StepContext
from onward.model.call import CALL_KEY_CHARACTERS_MAX
from onward.model.ids import called
from onward.model.stored import as_declared, as_stored, content_of, is_awaitable
from onward.model.values import rfc3339

if TYPE_CHECKING:
    from onward.flows.define import Step

T = TypeVar("T")
CALLS_MAX = 100_000
ABOUT_CHARACTERS = 120
TURN_EVERY = 200
"""How many answers are given from the history before other tasks of the process get a turn."""


class Inside:
    """Says that the current code is inside a step, where steps are functions."""


INSIDE: Final = Inside()
here: ContextVar[Scope | Inside | None] = ContextVar("onward_flow", default=None)
"""The scope of the flow that the current code is in."""


def scope_here(what: str) -> Scope:
    """The scope of the current code; refuses `what` outside a flow and inside a step."""
    scope = here.get()
    if isinstance(scope, Scope):
        return scope
    if scope is None:
        raise InvalidInput(f"{what} works only inside a flow: call it in a function with @flow.")
    raise InvalidInput(f"{what} does not work inside a step; call it in the flow, between its steps.")


class Asked(msgspec.Struct, frozen=True):
    """A call as the code makes it now: its kind, and what it is called with, as a hash and for people."""

    name: str
    type: str
    inputs: str = ""
    about: str = ""


def asked_with(name: str, type: str, arguments: Mapping[str, Any]) -> Asked:
    """A call with these arguments. Those that are not data count by their type."""
    data = {key: _as_data(value) for key, value in arguments.items()}
    try:
        encoded = msgspec.json.encode(list(data.items()))
    except UnicodeEncodeError:  # half of a character, as in the name of a file that is no UTF-8
        data = {key: ascii(value) if isinstance(value, str) else value for key, value in data.items()}
        encoded = msgspec.json.encode(list(data.items()))
    about = msgspec.json.encode(list(data.values())).decode()
    if len(about) > ABOUT_CHARACTERS:
        about = _shortened([msgspec.json.encode(value).decode() for value in data.values()])
    return Asked(name, type, blake3(encoded).hexdigest(length=10), about)


def _shortened(values: Sequence[str]) -> str:
    """The arguments of a call with the beginning of each, so that people see which of them changed."""
    lengths, room = [0] * len(values), ABOUT_CHARACTERS
    for done, index in enumerate(sorted(range(len(values)), key=lambda index: len(values[index]))):
        lengths[index] = min(len(values[index]), room // (len(values) - done))
        room -= lengths[index]
    shown = (
        text if len(text) == length else f"{text[:length]}…"
        for text, length in zip(values, lengths, strict=True)
    )
    return f"[{','.join(shown)}]"


def _as_data(value: Any) -> Any:
    if value is None or type(value) in (str, int, bool):
        return value
    try:
        return as_stored(value, "an argument")
    except UnstorableValue:
        kind = type(value)
        return f"<{kind.__module__}.{kind.__qualname__}>"


class Parked(msgspec.Struct, frozen=True):
    """What a branch waits for: a time, an answer, or a run. `is_stopped`: only a person continues that."""

    says: str
    until_us: int | None = None
    is_asked: bool = False
    run: str = ""
    is_stopped: bool = False


class Stage(Protocol):
    """What a test puts in place of steps and agents, and what happens meanwhile."""

    def plays(self, *names: str) -> Callable[..., Any] | None:
        """The function in place of what has one of these names."""
        ...

    def during(self, work: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """What calls a function, real or not, on this stage."""
        ...


class FlowRun:
    """One attempt of a flow."""

    def __init__(self, name: str, step: StepContext, stage: Stage | None = None) -> None:
        """`stage` is that of a test."""
        self.name, self.step, self.recorder = name, step, step.recorder
        self.stage = stage
        self.root = Scope(())
        self.ended: BaseException | None = None
        """What ends the attempt, once something does."""
        self.calls = self._under_way = 0
        self.working = 1
        """How many branches do not wait for something outside."""
        self.not_awaited: Counter[str] = Counter()
        """How many calls of each step the code has written and not awaited yet."""
        self.waits: dict[str, Parked] = {}
        """What branches wait for, by the keys of their calls."""
        self._outer: asyncio.Task[Any] | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancels = 0

    # -- the function --------------------------------------------------------------------------------

    async def run(self, function: Coroutine[Any, Any, Any]) -> Any:
        """What the function returns. Raises what ended the attempt, whatever the function did about that."""
        outer = self._outer = asyncio.current_task()
        assert outer is not None
        self._cancels = outer.cancelling()
        try:
            self.root = Scope(await self.recorder.history())
            self.root.last_us = self.step.opened_at_us
        except BaseException:
            function.close()
            raise
        try:
            returned = await self.step.functions.attend(self.name, self._main(function))
        except asyncio.CancelledError:
            if self.is_cancelled:
                raise
            raise self.ended or InvalidInput(
                f"flow {self.name!r} was cancelled by its own code, and ended without a result."
            ) from None
        except (Exception, SystemExit):
            if self.ended is not None:
                raise self.ended from None
            raise
        if self.ended is not None:
            raise self.ended
        if forgotten := sorted((+self.not_awaited).keys()):
            steps = " and ".join(map(repr, forgotten))
            raise InvalidInput(
                f"flow {self.name!r} ended, but its code calls {steps} without `await`, so that call did not "
                f"run; write `await {forgotten[0]}(…)` and resume the run."
            )
        return returned

    async def _main(self, function: Coroutine[Any, Any, Any]) -> Any:
        self._task = asyncio.current_task()
        return await self.inside(self.root, function)

    async def inside(self, scope: Scope, function: Awaitable[Any]) -> Any:
        """What the function returns in this scope, all of whose history it must have used."""
        scope.task, scope.flow = asyncio.current_task(), self
        token = here.set(scope)
        try:
            returned = await function
        finally:
            here.reset(token)
        left = scope.ahead()
        if left is not None and self.ended is None:
            where = f"its branch {scope.path}" if scope.path else "the flow"
            raise self.stop(
                FlowChanged(
                    f"the history has {left.key!r} (event {left.seq}), and {where} ended without calling it. "
                    f"{self._advice(left)}"
                )
            )
        return returned

    @property
    def is_cancelled(self) -> bool:
        """Whether the engine ends the attempt from outside."""
        return self._outer is not None and self._outer.cancelling() > self._cancels

    def stop(self, why: BaseException) -> asyncio.CancelledError:
        """End the attempt for this reason, once the calls under way have finished; what to raise."""
        if self.ended is None:
            self.ended = why
        self._stop_if_idle()
        return asyncio.CancelledError()

    def _stop_if_idle(self) -> None:
        task = self._task
        if self.ended is None or self._under_way or task is None or task.done():
            return
        if task is not asyncio.current_task():  # that one gets the error that `stop` returns
            task.cancel()

    def check_going(self, scope: Scope, what: str) -> None:
        """Refuse a call of an attempt that ends, and one from a task that is not a branch of the flow."""
        if self.ended is not None or self.is_cancelled:
            raise asyncio.CancelledError
        if asyncio.current_task() is not scope.task:
            raise self.stop(
                InvalidInput(
                    f"{what} was called from a task that the flow did not start; use `await gather(…)` or "
                    "`await each(…)` of onward instead of asyncio's."
                )
            )

    def work(
        self, step: Step[..., Any], args: Any, kwargs: Any, returns: Any
    ) -> Callable[[], Awaitable[Any]]:
        """What calls the function of a step; a test may have another in its place."""
        if self.stage is None:
            return partial(call_function, self.step, step.function, args, kwargs, returns, step.name)
        function = self.stage.plays(step.name) or step.function
        return self.stage.during(
            partial(call_function, self.step, function, args, kwargs, returns, step.name)
        )

    def plays(self, returns: Any, args: Any, name: str, key: str) -> Callable[[], Awaitable[Any]] | None:
        """What calls the function that a test has in place of what has this key, or else this name."""
        function = None if self.stage is None else self.stage.plays(key, name)
        if self.stage is None or function is None:
            return None
        return self.stage.during(partial(call_function, self.step, function, args, {}, returns, name))

    # -- calls ---------------------------------------------------------------------------------------

    def begin(self, scope: Scope, asked: Asked) -> tuple[str, PastCall | None]:
        """The key of a call, and what the history has of it. Refuses a call that is not its next."""
        self.check_going(scope, f"step {asked.name!r}")
        key = scope.key(scope.named(asked.name))
        if len(key) > CALL_KEY_CHARACTERS_MAX:
            raise self.stop(
                InvalidInput(
                    f"the key {key[:60]!r}… of a call has more than {CALL_KEY_CHARACTERS_MAX} characters."
                )
            )
        scope.begun, scope.drawn = scope.begun + 1, 0
        self.calls += 1
        if self.calls > CALLS_MAX:
            raise self.stop(
                InvalidInput(
                    f"flow {self.name!r} made {CALLS_MAX:,} calls, the most that a flow can make; move a "
                    "part of it into a flow of its own."
                )
            )
        past = scope.ahead()
        if past is None:
            self._check_frontier(scope, key)
            return key, None
        if scope.at == len(scope.past) or past is not scope.past[scope.at] or past.key != key:
            raise self.changed(past, key)
        if past.inputs and past.inputs != asked.inputs:
            raise self.stop(FlowChanged(f"{_differs(key, past, asked)}. {self._advice(past)}"))
        scope.at += 1
        scope.patches = ()
        return key, past

    def check_awaited(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Refuse a call with another call in place of what that returns."""
        for key, value in arguments.items():
            if type(value) is CoroutineType:
                value.close()
                raise self.stop(
                    InvalidInput(
                        f"{key!r} of step {name!r} is a call without `await`; write `{name}(await …)`."
                    )
                )

    def changed(self, past: PastCall, key: str) -> asyncio.CancelledError:
        """End the attempt: the history has another call here."""
        return self.stop(
            FlowChanged(
                f"the history has {past.key!r} (event {past.seq}) here, and the code now calls {key!r}. "
                f"{self._advice(past)}"
            )
        )

    def _check_frontier(self, scope: Scope, key: str) -> None:
        """Refuse a new call where a scope around this one has gone on already."""
        above = scope.above
        while above is not None:
            past = above.ahead()
            if past is not None:
                raise self.changed(past, key)
            above = above.above

    def _advice(self, past: PastCall) -> str:
        return (
            "What a flow calls must depend only on its inputs and recorded answers. Undo the change, guard "
            'it with `if patch("…")`, keep old runs on old code with version=, or fork before it: '
            f"onward replay {called(self.step.run_id)} --from {past.key}"
        )

    async def replayed(self, scope: Scope, past: PastCall, returns: Any) -> Any:
        """The answer that the log has, as the type that is declared now."""
        scope.last_us = past.at_us
        if self.calls % TURN_EVERY == 0:
            await asyncio.sleep(0)
        if not past.is_answered:
            raise step_failed(past.key, past.error)
        try:
            value = await self.recorder.stored(past) if past.value_blob else past.value
        except Exception as error:
            raise self.stop(error) from None
        return self.fitting(value, returns, past.key, past.seq)

    def is_answer(self, scope: Scope, past: PastCall) -> bool:
        """Whether what the log has of a call is its answer. A failure is one once the flow has gone on."""
        if past.is_answered:
            return True
        if past.retry_at_us:
            return False
        return bool(past.error) and (past.is_once or scope.has_gone_on_after(past))

    async def live(
        self,
        scope: Scope,
        key: str,
        function: Callable[[], Awaitable[Any]],
        options: CallOptions,
        past: PastCall | None,
    ) -> Answered:
        """Make a call and record it."""
        patches = self.riding(scope, past)
        if patches:
            options = msgspec.structs.replace(options, patches=patches)
        if past is not None and past.retry_at_us:
            await self._wait_to_retry(key, past.retry_at_us, past.error)
        while True:
            try:
                with self.under_way():
                    answered = await self.recorder.answer(key, function, (), options)
            except asyncio.CancelledError:
                raise self.cancelled(key) from None
            except (KeyboardInterrupt, GeneratorExit):  # of the process, or of the flow itself
                raise
            except BaseException as error:  # it was not begun, has no recorded end, or is in doubt
                raise self.stop(error) from None
            if not answered.retry_at_us:
                scope.last_us = answered.at_us
                return answered
            await self._wait_to_retry(key, answered.retry_at_us, answered.error)

    async def _wait_to_retry(self, key: str, due_us: int, error: str) -> None:
        says = f"until {rfc3339(due_us)}, to try {key} again ({error[:ABOUT_CHARACTERS]})"
        await self.wait_until(key, due_us, says)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """A call is made inside: the attempt does not end before it has."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._stop_if_idle()

    @contextmanager
    def only_waiting(self) -> Iterator[None]:
        """A call that is under way waits for a person inside: the attempt may end."""
        self._under_way -= 1
        self._stop_if_idle()
        try:
            yield
        finally:
            self._under_way += 1

    def cancelled(self, key: str) -> asyncio.CancelledError:
        """What to raise of a call that was cancelled: not by the engine, so by the flow's own code."""
        if self.ended is not None or self.is_cancelled:
            return asyncio.CancelledError()
        return self.stop(
            InvalidInput(
                f"step {key!r} was cancelled by the flow itself (asyncio.timeout?); use @step(timeout=…)."
            )
        )

    def riding(self, scope: Scope, past: PastCall | None) -> tuple[str, ...]:
        """The patches that ride on a call."""
        patches = past.patches if past is not None else scope.patches
        scope.patches = ()
        return patches

    async def guarded(self, work: Awaitable[T]) -> T:
        """What something of the recorder returns; a refusal ends the attempt."""
        try:
            return await work
        except Exception as error:
            raise self.stop(error) from None

    def fitting(self, value: Any, returns: Any, key: str, seq: int) -> Any:
        """An answer as the declared type; one that does not fit ends the attempt."""
        try:
            return as_declared(value, returns)
        except ValueError as error:
            kind = getattr(returns, "__name__", str(returns))
            event = f" (event {seq})" if seq else ""
            raise self.stop(
                FlowChanged(
                    f"the answer of {key!r}{event} does not match {kind}: {error}. Add a default, or fork "
                    f"before it: onward replay {called(self.step.run_id)} --from {key}"
                )
            ) from None

    # -- waiting -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def parked(self, key: str, parked: Parked) -> AsyncIterator[None]:
        """A branch waits inside. When every branch does, the attempt ends, and no process is held."""
        self.waits[key] = parked
        self.working -= 1
        try:
            self.park_if_all_wait()
            yield
        finally:
            self.working += 1
            del self.waits[key]

    def park_if_all_wait(self) -> None:
        """End the attempt if no branch works any more and some wait."""
        if self.working or not self.waits or self.ended is not None:
            return
        times = [one.until_us for one in self.waits.values() if one.until_us is not None]
        asked = [key for key, one in self.waits.items() if one.is_asked]
        runs = [one.run for one in self.waits.values() if one.run]
        is_stopped = all(one.is_stopped for one in self.waits.values())
        says = "; ".join(one.says for one in self.waits.values())[:500]
        self.recorder.park(says, min(times, default=None), asked, runs, is_stopped=is_stopped)

    async def wait_until(self, key: str, due_us: int, says: str) -> None:
        """Wait for a time: in memory if it is near, else in a branch that is parked."""
        left_us = due_us - self.recorder.now_us()
        if left_us <= 0:
            return
        if left_us < IN_MEMORY_US:
            await self.guarded(self.recorder.rest(due_us))
            return
        async with self.parked(key, Parked(says, due_us)):
            while self.recorder.now_us() < due_us:
                await self.guarded(self.recorder.rest(due_us))

    # -- branches ------------------------------------------------------------------------------------

    def enter(self, scope: Scope, what: str) -> tuple[str, Group | None]:
        """Begin a group of branches, or a flow inside this one; the name of the group, and its history."""
        self.check_going(scope, f"{what!r}")
        named = scope.named(what)
        group = scope.enter(named)
        if group is None and named in scope.inside:
            past = scope.ahead()
            assert past is not None  # the group itself is ahead
            raise self.changed(past, scope.key(named))
        return named, group

    def branch(self, above: Scope, named: str, segment: str, group: Group | None) -> Scope:
        """The scope of one branch, which takes its history with it."""
        history = group.calls.pop(segment, ()) if group is not None else ()
        scope = Scope(history, above.key(segment), above, named)
        scope.flow, scope.last_us = self, above.last_us
        return scope


def _differs(key: str, past: PastCall, asked: Asked) -> str:
    """That a call has other arguments now."""
    if past.about and past.about == asked.about:
        return (
            f"{key!r} is now called with other arguments than in the history (event {past.seq}), which "
            f"differ after what is shown here: {asked.about}"
        )
    return (
        f"{key!r} was called with {past.about or 'other values'} (event {past.seq}) and is now called with "
        f"{asked.about or 'others'}"
    )


def written(name: str, flow: FlowRun | None, call: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """A call of a step or a flow, as the code has written it: it runs when it is awaited."""
    if flow is not None:
        flow.not_awaited[name] += 1
    cast("CoroutineType[Any, Any, T]", call).__qualname__ = name  # Python's own warning shows it
    return call


def step_failed(key: str, error: str) -> StepFailed:
    """The failure of a step, from what the log has of it."""
    kind, _, text = error.partition(": ")
    return StepFailed(key, kind, text)


async def call_function(
    step: StepContext, function: Callable[..., Any], args: Any, kwargs: Any, returns: Any, name: str
) -> Any:
    """What a step's function returns, as it is stored; UnfitResult if it cannot be, or has another type."""
    token = here.set(INSIDE)
    try:
        if inspect.iscoroutinefunction(function):
            value = await function(*args, **kwargs)
        else:
            value = await step.functions.call(partial(function, *args, **kwargs))
            if is_awaitable(value):
                value = await value
    finally:
        here.reset(token)
    what = f"the result of step {name!r}"
    try:
        content = content_of(value, what)
        value = as_stored(value, what) if content is None else content
        as_declared(value, returns)
    except UnstorableValue as error:
        raise UnfitResult(str(error)) from None
    except ValueError as error:
        raise UnfitResult(f"{what} is not what it declares: {error}.") from None
    return value

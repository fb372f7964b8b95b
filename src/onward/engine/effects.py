"""Effects that run at most once per key, whatever dies on the way.

These are effects outside steps (`onward effect`, `app.effect`); a step's own are calls, in
`engine/calls.py`.

The start is stored before the effect, the result after it. A later caller gets the result. A caller that
comes while the effect runs waits for it, as long as its process renews it. An effect that was started, has
no result and is not renewed any more is in doubt: a person says whether to run it again, forget it, or count
it as done. Effects of one process that are called inside each other would wait for ever: `Circles` refuses
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec.structs import replace

from onward.clock import Clock, Ids
from onward.engine.persist import retry_store, unbroken
from onward.errors import Refused, ResultLost, StoreError, UnstorableValue, told
from onward.model.result import (
    CommandResult,
    EffectResult,
    FunctionResult,
    SettledResult,
    as_value,
    check_effect_key,
    pack_effect,
    unpack_effect,
)
from onward.model.stored import as_stored, check_returns, is_awaitable
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.store.owner import owner_label
from onward.store.port.leases import Effect, Effects
from onward.threads import in_thread

_inside: ContextVar[tuple[tuple[Circles, str], ...]] = ContextVar("onward_effects", default=())
"""The effects whose functions called the code that runs now."""


class Circles:
    """Knows which effects run inside which, and refuses a wait that could never end."""

    def __init__(self) -> None:
        self._waits: list[tuple[str, str]] = []  # an effect, and another one that it waits for

    @contextlib.contextmanager
    def making(self, key: str) -> Iterator[None]:
        """Whatever is called in this block runs inside this effect."""
        token = _inside.set((*_inside.get(), (self, key)))
        try:
            yield
        finally:
            _inside.reset(token)

    @contextlib.contextmanager
    def waiting(self, key: str) -> Iterator[None]:
        """The caller waits for this effect; refused if the caller runs inside it, directly or not."""
        makers = [maker for circles, maker in _inside.get() if circles is self]
        if self._reached(key) & set(makers):
            raise Refused(
                "effect_in_itself",
                f"effect {key!r} is called inside effect {makers[-1]!r}, which waits for it; call it before "
                "or after that effect.",
                details={"key": key},
            )
        waits = [(maker, key) for maker in makers]
        self._waits += waits
        try:
            yield
        finally:
            for wait in waits:
                self._waits.remove(wait)

    def _reached(self, key: str) -> set[str]:
        """The effect itself and all that it waits for."""
        reached, ahead = {key}, [key]
        while ahead:
            first = ahead.pop()
            found = {waited for maker, waited in self._waits if maker == first} - reached
            reached |= found
            ahead += found
        return reached


POLL_S = 0.1
RENEW_S_MAX = 3.0
EffectFunction = Callable[[], Awaitable[EffectResult]]


class NotBegun(Exception):
    """Raised by an effect's function if it did nothing; `why` is raised for the caller."""

    def __init__(self, why: Exception) -> None:
        self.why = why
        super().__init__(str(why))


class Once(msgspec.Struct, frozen=True):
    """How an effect is asked for.

    `only_success`: a failure is not stored, so the effect runs again. `retry`: run it again if it is in
    doubt. Without `wait`, one that another process is running is refused instead of waited for.
    """

    only_success: bool = False
    retry: bool = False
    wait: bool = True


ONCE = Once()


class EffectOutcome(msgspec.Struct, frozen=True):
    """The result of an effect, and whether it ran just now."""

    result: EffectResult
    is_new: bool


class AtMostOnce(msgspec.Struct, frozen=True):
    """Runs effects, each at most once for its key."""

    effects: Effects
    clock: Clock
    ids: Ids
    lease_s: float | None = None
    circles: Circles = msgspec.field(default_factory=Circles)
    redactor: Redactor = NOTHING_SECRET

    async def make(self, key: str, perform: EffectFunction, once: Once = ONCE) -> EffectOutcome:
        """The result of `perform`, which is called only if no result is stored; or a refusal."""
        check_effect_key(key)
        token, instead_of = self.ids.unique(), None
        while True:
            found = await self._begin(key, token, instead_of)
            if found.result is not None:
                return EffectOutcome(unpack_effect(key, found.result), is_new=False)
            if found.token == token:
                was_in_doubt = instead_of is not None
                return EffectOutcome(
                    await self._perform(key, token, perform, once, was_in_doubt), is_new=True
                )
            if not found.is_alive:
                if not once.retry:
                    raise in_doubt(found)
                instead_of = found.token
            elif once.wait:
                with self.circles.waiting(key):
                    await self.clock.wait_s(POLL_S, asyncio.Event())
            else:
                raise _under_way(found)

    async def call(self, key: str, function: Callable[[], Any], once: Once = ONCE) -> Any:
        """The value of a function, sync or async; an exception is stored like a value.

        If its value cannot be stored, it was done all the same: it is in doubt.
        """
        check_returns(function, f"the function of effect {key!r}")
        raised: list[Exception] = []

        async def perform() -> EffectResult:
            try:
                value = await _called(function)
            except Exception as error:
                raised.append(error)
                return FunctionResult(error=told(error))
            try:
                return FunctionResult(value=as_stored(value, f"the result of effect {key!r}"))
            except UnstorableValue as error:
                how = f"its result: `onward effect {shlex.quote(key)} --done TEXT`"
                raise ResultLost(f"effect {key!r}", str(error), how) from None

        made = await self.make(key, perform, once)
        if raised:
            raise raised[0]
        return as_value(key, made.result)

    async def find(self, key: str) -> Effect | None:
        """An effect as it is stored."""
        return await self.effects.find(check_effect_key(key))

    async def forget(self, key: str) -> Effect:
        """Delete an effect, so that the next call runs it. One that is under way is refused."""
        found = await self._stopped(key)
        await retry_store(self.clock, lambda: self.effects.forget(key, found.token))
        return found

    async def settle(self, key: str, text: str) -> SettledResult:
        """Store `text` as the result of an effect in doubt that a person found done."""
        found = await self._stopped(key)
        token, result = self.ids.unique(), SettledResult(text=self.redactor.redact(text))
        if found.result is not None:
            raise Refused("effect_finished", f"effect {key!r} is not in doubt: it already has its result.")
        begun = await self._begin(key, token, found.token)
        if begun.token != token or not await self._finish(key, token, result):
            raise _lost(key)
        return result

    async def _stopped(self, key: str) -> Effect:
        found = await self.find(key)
        if found is None:
            raise Refused("effect_not_found", f"there is no effect {key!r} in this database.")
        if found.result is None and found.is_alive:
            raise _under_way(found)
        return found

    async def _begin(self, key: str, token: str, instead_of: str | None) -> Effect:
        at_us = self.clock.now_us()
        return await retry_store(
            self.clock, lambda: self.effects.begin(key, token, at_us=at_us, instead_of=instead_of)
        )

    async def _finish(self, key: str, token: str, result: EffectResult) -> bool:
        stored, at_us = pack_effect(result), self.clock.now_us()
        return await retry_store(self.clock, lambda: self.effects.finish(key, token, stored, at_us=at_us))

    async def _perform(
        self, key: str, token: str, perform: EffectFunction, once: Once, was_in_doubt: bool
    ) -> EffectResult:
        try:
            async with self._renewed(key, token):
                with self.circles.making(key):
                    result = redacted(self.redactor, await perform())
        except NotBegun as refused:
            await self._let_go(key, token, was_in_doubt)
            raise refused.why from refused
        except GeneratorExit:  # this coroutine is closed, and can wait for nothing more
            raise
        except BaseException:
            # For those who ask soon: without it they wait until its lease expires, or its process is gone.
            with contextlib.suppress(StoreError):
                await self.effects.renew(key, token, is_at_it=False)
            raise
        # Even if the caller is cancelled now: it ran, and its result must not be in doubt.
        await unbroken(self._remember(key, token, result, once))
        return result

    async def _remember(self, key: str, token: str, result: EffectResult, once: Once) -> None:
        if once.only_success and not result.is_success:
            await retry_store(self.clock, lambda: self.effects.forget(key, token))
        elif not await self._finish(key, token, result):
            raise _lost(key)

    async def _let_go(self, key: str, token: str, was_in_doubt: bool) -> None:
        """Nothing ran here: release the key, unless an earlier start is still in doubt."""
        if was_in_doubt:
            await retry_store(self.clock, lambda: self.effects.renew(key, token, is_at_it=False))
        else:
            await retry_store(self.clock, lambda: self.effects.forget(key, token))

    @contextlib.asynccontextmanager
    async def _renewed(self, key: str, token: str) -> AsyncIterator[None]:
        renewing = asyncio.create_task(self._renew(key, token))
        try:
            yield
        finally:
            renewing.cancel()

    async def _renew(self, key: str, token: str) -> None:
        every_s = min(RENEW_S_MAX, (self.lease_s or 3 * RENEW_S_MAX) / 3)
        is_ours = True
        while is_ours:
            await self.clock.wait_s(every_s, asyncio.Event())
            # A renewal may fail: the next may succeed, and only the token decides at the end.
            with contextlib.suppress(StoreError):
                is_ours = await self.effects.renew(key, token)


def redacted(redactor: Redactor, result: EffectResult) -> EffectResult:
    """The result without secrets: so it is stored, and so every caller gets it, the first one too."""
    if redactor.is_empty:
        return result
    match result:
        case FunctionResult(value=value, error=error):
            return FunctionResult(value=redactor.redact_value(value), error=error and redactor.redact(error))
        case SettledResult(text=text):
            return SettledResult(text=redactor.redact(text))
        case CommandResult(stdout=stdout, stderr=stderr):
            return replace(result, stdout=redactor.redact(stdout), stderr=redactor.redact(stderr))


async def _called(function: Callable[[], Any]) -> Any:
    """Call an async function in the event loop, any other in its own thread."""
    if inspect.iscoroutinefunction(function):
        return await function()
    returned = await in_thread(function)
    return await returned if is_awaitable(returned) else returned


def in_doubt(found: Effect) -> Refused:
    """The refusal that says how to decide."""
    return Refused(
        "effect_in_doubt",
        f"effect {found.key!r} was started by {owner_label(found.owner)} and never finished, so it may or "
        f"may not have been done; check, then run `onward effect {shlex.quote(found.key)} --forget` (it was "
        "not), `--done TEXT` (it was, with this output), or `--retry -- COMMAND` to run it again.",
        details={"key": found.key, "begun_at_us": found.begun_at_us},
    )


def _under_way(found: Effect) -> Refused:
    return Refused(
        "effect_under_way",
        f"effect {found.key!r} is being run by {owner_label(found.owner)}; try again when that execution has "
        "ended.",
        details={"key": found.key, "begun_at_us": found.begun_at_us},
    )


def _lost(key: str) -> Refused:
    return Refused(
        "effect_lost",
        f"effect {key!r} ran, but in the meantime someone decided to run it again; the result of this "
        "execution is not stored.",
        details={"key": key},
    )

"""Recorded calls as a handler makes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from onward.errors import InvalidInput
from onward.model.call import CallKind
from onward.model.values.bounds import Seconds, Whole

RETRIES = Whole(0, 100)
TIME_LIMIT = Seconds(0.001)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How a call is made and recorded."""

    repeatable: bool = True
    time_limit_s: float | None = None
    retries: int = 0
    type: str = CallKind.FUNCTION.value
    name: str = ""

    def check(self, key: str, function: Callable[..., Any]) -> CallOptions:
        """The options themselves; InvalidInput if they cannot be kept."""
        RETRIES.check(self.retries, f"retries of call {key!r}")
        if self.time_limit_s is None:
            return self
        TIME_LIMIT.check(self.time_limit_s, f"time_limit_s of call {key!r}")
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(
                f"call {key!r} has a time limit, and its function is plain: a thread cannot be ended. "
                "Write `async def`, or give the step a timeout."
            )
        return self


class Recorder(Protocol):
    """Makes the calls of one attempt and records their answers."""

    def key_of(self, call: str) -> str:
        """The idempotency key of a call."""
        ...

    async def call(
        self, key: str, function: Callable[..., Any], arguments: Sequence[Any], options: CallOptions
    ) -> Any:
        """What the function answered: now, or when this call was made before."""
        ...

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """The same for an effect: what it raised is an answer, too, unless `only_success`."""
        ...

    def call_from_thread(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The same for a plain function, which runs in a thread."""
        ...

    async def is_held(self) -> bool:
        """Whether the attempt was ended between two calls, and its result does not count."""
        ...

    def close(self) -> None:
        """The attempt is over."""
        ...

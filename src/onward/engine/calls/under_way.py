"""The calls of an attempt that are under way, and which of them are inside others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from onward.engine.calls.holding import Holding
from onward.errors import InvalidInput, Refused


class Enclosing(msgspec.Struct, frozen=True):
    """The call that the current code is inside of."""

    calls: UnderWay
    key: str
    repeatable: bool


_enclosing: ContextVar[Enclosing | None] = ContextVar("onward_enclosing_call", default=None)


class UnderWay:
    """Those of one attempt. A hold waits for them, unless they only wait for calls inside them."""

    def __init__(self, step: str, holding: Holding) -> None:
        self._step, self._holding = step, holding
        self._keys: set[str] = set()

    def check_idle(self, key: str) -> None:
        """Refuse a call that is being made already."""
        if key in self._keys:
            raise Refused("call_under_way", f"call {key!r} of step {self._step} is being made already.")

    def outer(self, key: str) -> Enclosing | None:
        """The call that this one is inside of; InvalidInput if that one must not be repeated."""
        outer = _enclosing.get()
        if outer is None or outer.calls is not self or outer.key not in self._keys:
            return None
        if not outer.repeatable:
            raise InvalidInput(
                f"call {outer.key!r} must not be repeated, so it cannot contain call {key!r}; "
                "make the calls one after the other."
            )
        return outer

    @contextmanager
    def one(self, key: str, outer: Enclosing | None) -> Iterator[None]:
        """The call is under way."""
        self._keys.add(key)
        self._holding.begin(key, None if outer is None else outer.key)
        try:
            yield
        finally:
            self._keys.discard(key)
            self._holding.end(key)

    @contextmanager
    def inside(self, key: str, *, repeatable: bool) -> Iterator[None]:
        """Calls that are made here are inside this one."""
        token = _enclosing.set(Enclosing(self, key, repeatable))
        try:
            yield
        finally:
            _enclosing.reset(token)

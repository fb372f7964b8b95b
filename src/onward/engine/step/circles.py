"""Effects of one process that would wait for each other for ever: each is called inside the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from onward.errors import Refused

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
                f"effect {key!r} is called inside effect {makers[-1]!r}, which it waits for; "
                "call it before or after, not inside.",
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

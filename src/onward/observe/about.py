"""What the work at hand is about: every line that is logged meanwhile carries it, whoever logs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_NOTHING: Mapping[str, str] = MappingProxyType({})
_ABOUT: ContextVar[Mapping[str, str]] = ContextVar("onward_about", default=_NOTHING)


def current() -> Mapping[str, str]:
    """The fields of the work at hand: `run`, `pipeline`, `step` and what else was said."""
    return _ABOUT.get()


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Inside, lines are about these too. Tasks and threads that begin inside inherit it."""
    token = _ABOUT.set({**_ABOUT.get(), **fields})
    try:
        yield
    finally:
        _ABOUT.reset(token)

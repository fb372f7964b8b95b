"""The run and step that the current work is about: every log line gets these fields, whoever logs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_NOTHING: Mapping[str, str] = MappingProxyType({})
_ABOUT: ContextVar[Mapping[str, str]] = ContextVar("onward_about", default=_NOTHING)


def current() -> Mapping[str, str]:
    """The fields of the current work: `run`, `pipeline`, `step` and others that were added."""
    return _ABOUT.get()


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Add fields to all log lines inside. Tasks and threads that start inside inherit them."""
    token = _ABOUT.set({**_ABOUT.get(), **fields})
    try:
        yield
    finally:
        _ABOUT.reset(token)

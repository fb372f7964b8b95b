"""Somebody else's function, called in a thread beside the event loop.

Such a thread cannot be ended from outside and may never end by itself, so it is known whether one is at it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_busy: set[int] = set()


async def call_beside(function: Callable[..., T], *arguments: object) -> T:
    """What the function returns. Who is cancelled meanwhile leaves it behind."""
    return await asyncio.to_thread(_called, function, *arguments)


def _called(function: Callable[..., T], *arguments: object) -> T:
    _busy.add(threading.get_ident())
    try:
        return function(*arguments)
    finally:
        _busy.discard(threading.get_ident())


def is_somebody_busy() -> bool:
    """Whether a function that was called has not returned, even if nobody waits for it any more."""
    return bool(_busy)

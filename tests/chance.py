"""Chance in tests: profiles of hypothesis, how many examples or places each gives a test, slow databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from random import Random
from typing import Any

from hypothesis import settings

SAME = "onward"
EXPLORING = "exploring"

# Never a deadline (machines differ), and a line to paste when an example fails. The first draws the same
# examples each time, so that a change fails for what it changed; the second always draws new ones.
settings.register_profile(SAME, derandomize=True, print_blob=True, deadline=None, max_examples=100)
settings.register_profile(EXPLORING, derandomize=False, print_blob=True, deadline=None, max_examples=500)


def examples(count: int, **more: Any) -> settings:
    """So many examples in `make test`, and as many times more as the profile in force has."""
    share = settings().max_examples / settings.get_profile(SAME).max_examples
    return settings(max_examples=round(count * share), **more)


def places(stride: int, *, first: int = 1) -> Iterator[int]:
    """1, 2, 3 … for a test that breaks something at each place in turn.

    In `make test` every `stride`th, from `first` on.
    """
    is_exploring = settings().max_examples > settings.get_profile(SAME).max_examples
    return count(1) if is_exploring else count(first, stride)


def slowness(seed: str) -> Callable[[], Awaitable[None]]:
    """Waits now and then, as a database on a busy machine does: a test must not depend on how fast it is."""
    dice = Random(seed)

    async def delay() -> None:
        if dice.random() < 0.5:
            await asyncio.sleep(dice.uniform(0, 0.04))

    return delay

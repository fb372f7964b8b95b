"""Chance in tests: the profiles of hypothesis, and how many examples or places a test gets in each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
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

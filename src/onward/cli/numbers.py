"""Flags that take numbers within bounds; any other value gets one clear sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import CoercionError, Parameter

from onward.model.values import Seconds, Whole, shown

if TYPE_CHECKING:
    from cyclopts import Token


@dataclass(frozen=True)
class Reading:
    """How the text of a flag becomes a number. `read` raises ValueError, which says what was expected."""

    read: Callable[[str], int | float]

    def __call__(self, kind: type, tokens: Sequence[Token]) -> int | float:
        (token,) = tokens
        try:
            return self.read(token.value)
        except ValueError as error:
            said = f"{shown(token.value)} is not {error}."
            raise CoercionError(msg=said, token=token, target_type=kind) from None


def number(bounds: Whole | Seconds, *, help: str, metavar: str | None = None) -> Parameter:
    """A flag for a number within `bounds`."""
    return Parameter(help=help, metavar=metavar, converter=Reading(bounds.read))


def duration(bounds: Seconds, *, help: str) -> Parameter:
    """A flag for a duration with its unit, such as 10s or 500ms, of at least what `bounds` says."""
    return Parameter(help=help, converter=Reading(lambda text: _seconds(text, bounds)))


def _seconds(text: str, bounds: Seconds) -> float:
    from onward.pipeline.value import Duration

    seconds = Duration.parse(text.strip()).seconds
    if seconds < bounds.least:
        raise ValueError(f"a duration of at least {bounds.least:g}s")
    return seconds

"""Which numbers may come in from outside, in one place.

Flags, settings, attributes of a pipeline, arguments of the Python API and imported files are held against
these before anything is done with them. Every database can store what is within them, and every clock can
wait for it.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from onward.errors import InvalidInput

INTEGER_MAX = 2**63 - 1
"""Larger numbers would not survive a database column."""
DURATION_S_MAX = 100 * 365 * 86_400
"""A century: longer waits overflow an instant in microseconds and mean nothing."""
INSTANT_US_MAX = 253_402_300_799_000_000
"""The last second of the year 9999: later instants cannot be written as text."""
Number = Annotated[int, Meta(ge=-INTEGER_MAX - 1, le=INTEGER_MAX)]
Instant = Annotated[int, Meta(ge=0, le=INSTANT_US_MAX)]
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[0-9]{1,19}(\.[0-9]{1,19})?")
SHOWN_MAX = 40


class Whole(msgspec.Struct, frozen=True):
    """A whole number from `least` to `most`."""

    least: int
    most: int

    def read(self, text: str) -> int:
        """The number that is written; ValueError says what was expected."""
        if not _WHOLE.fullmatch(text) or not self.least <= int(text) <= self.most:
            raise ValueError(str(self))
        return int(text)

    def check(self, value: object, what: str) -> int:
        """The value itself; InvalidInput names `what` if it is anything else."""
        if type(value) is not int or not self.least <= value <= self.most:
            raise InvalidInput(f"{what} is {shown(value)}, which is not {self}.")
        return value

    def __str__(self) -> str:
        return f"a whole number from {self.least} to {self.most}"


_NUMBERS = (int, float)


class Seconds(msgspec.Struct, frozen=True):
    """A number of seconds of at least `least`, and at most a century."""

    least: float = 0.0

    def read(self, text: str) -> float:
        """The seconds that are written; ValueError says what was expected."""
        if not _DECIMAL.fullmatch(text) or not self.least <= float(text) <= DURATION_S_MAX:
            raise ValueError(str(self))
        return float(text)

    def check(self, value: object, what: str) -> float:
        """The value itself; InvalidInput names `what` if it is anything else."""
        # Neither infinity nor what is no number at all compares as being within.
        is_number = isinstance(value, _NUMBERS) and not isinstance(value, bool)
        if not is_number or not self.least <= value <= DURATION_S_MAX:  # type: ignore[operator]
            raise InvalidInput(f"{what} is {shown(value)}, which is not {self}.")
        return value  # type: ignore[return-value]

    def __str__(self) -> str:
        return f"a number of seconds from {self.least:g} to {DURATION_S_MAX}"


def shown(value: object) -> str:
    """A value for a message: a number may have any number of digits."""
    text = repr(value) if not isinstance(value, int) or abs(value) <= 10**SHOWN_MAX else "a very large number"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


PRIORITY = Whole(-(2**31), 2**31 - 1)
EVENT = Whole(0, INTEGER_MAX)
POSITION = Whole(0, INTEGER_MAX)
INSTANT = Whole(0, INSTANT_US_MAX)
ATTEMPT = Whole(1, INTEGER_MAX)
LISTED = Whole(0, 2**31)
LIMIT = Whole(1, 2**31 - 1)
KEPT = Whole(0, INTEGER_MAX)
CONCURRENCY = Whole(1, 1_000)
PORT = Whole(0, 65_535)
GIBIBYTES = Whole(1, 2**20)
WAIT = Seconds()
GRACE = Seconds(0.001)
"""How long a step may take to finish: with none, the first signal would be the second."""
LEASE = Seconds(1.0)
"""A renewal at every third of it must come through a busy machine and a network in time."""

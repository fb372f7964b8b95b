"""Cursors: where a page of a list ended, as a text that a caller gives back and does not read.

A cursor names an entry by what never changes about it: its time and its names. So the next page begins right
after that entry, whatever was added or changed in between, and even if the entry is gone.
"""

from __future__ import annotations

import base64
from typing import TypeVar

import msgspec

from onward.errors import InvalidInput

P = TypeVar("P", bound=tuple[int | str, ...])


def write_cursor(place: tuple[int | str, ...]) -> str:
    """The cursor of the entry at this place: its time, then its names."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_cursor(cursor: str, place: type[P]) -> P:
    """The place that a cursor names; refuses a text that is no cursor of such a list."""
    try:
        found = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(found, type=place)
    except (ValueError, msgspec.MsgspecError):
        raise InvalidInput(
            "the cursor is not one of this list; use the cursor of the last entry, or begin without one."
        ) from None

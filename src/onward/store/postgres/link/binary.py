"""Values as PostgreSQL's binary format has them: text, 64-bit numbers, bytes, and arrays of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

from psycopg.pq.abc import PGresult

from onward.errors import InvalidInput

BOOL, BYTEA, INT8, INT4, TEXT = 16, 17, 20, 23, 25
Value = int | str | bytes | None

# PostgreSQL's text holds every character but NUL. NUL is written as the last character there is and a zero,
# and that character, which nobody uses, as itself and a one; so every text comes back as it was.
LAST = "\U0010ffff"

_INT8, _INT4 = Struct("!q"), Struct("!i")
number, _length = _INT8.pack, _INT4.pack
_numbered, _header = Struct("!iq").pack, Struct("!iiiii").pack
_one, _one_number = Struct("!iiiiii").pack, Struct("!iiiiiiq").pack
_NULL = _length(-1)
_EIGHT = 8
PACKED_MAX = 256  # each length has a packer of its own


def dump(value: Value) -> bytes | None:
    """A value as a parameter."""
    if value is None or isinstance(value, bytes):
        return value
    return text(value) if isinstance(value, str) else number(value)


def text(value: str) -> bytes:
    """A text as a parameter."""
    # In the text and not in its bytes: Python would first ask whether what is looked for there is a number.
    if "\0" in value or LAST in value:
        value = value.replace(LAST, LAST + "1").replace("\0", LAST + "0")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{value!r} holds half of a character (a lone surrogate).") from None


def optional_text(value: str | None) -> bytes | None:
    """A text, or NULL."""
    return None if value is None else text(value)


def _load_text(raw: bytes) -> str:
    found = raw.decode()
    return found.replace(LAST + "0", "\0").replace(LAST + "1", LAST) if LAST in found else found


def texts(values: Sequence[str | None]) -> bytes:
    """An array of texts."""
    # Looked through together: to ask for each takes longer than to put them into one.
    together = "".join(filter(None, values))
    if "\0" in together or LAST in together:
        return _array(TEXT, [optional_text(value) for value in values])
    try:
        return _array(TEXT, [None if value is None else value.encode() for value in values])
    except UnicodeEncodeError:
        return _array(TEXT, [optional_text(value) for value in values])  # which says what is wrong


def byteas(values: Sequence[bytes | None]) -> bytes:
    """An array of byte strings."""
    return _array(BYTEA, values)


def numbers(values: Sequence[int | None]) -> bytes:
    """An array of 64-bit numbers."""
    if len(values) == 1 and (value := values[0]) is not None:
        return _one_number(1, 1, INT8, 1, 1, _EIGHT, value)
    if len(values) <= PACKED_MAX and None not in values:
        items = [_EIGHT] * (2 * len(values))
        items[1::2] = values  # type: ignore[assignment] # none of them is None
        return _packed(len(values))(1, 1, INT8, len(values), 1, *items)
    parts = [_NULL if value is None else _numbered(_EIGHT, value) for value in values]
    return b"".join([_header(1, 1, INT8, len(parts), 1), *parts])


@lru_cache(maxsize=PACKED_MAX)
def _packed(count: int) -> Callable[..., bytes]:
    """Packs an array of so many numbers at once."""
    return Struct("!5i" + "iq" * count).pack


def _array(kind: int, values: Sequence[bytes | None]) -> bytes:
    # One dimension, perhaps with NULLs, counted from one. Mostly there is one value.
    if len(values) == 1 and (value := values[0]) is not None:
        return _one(1, 1, kind, 1, 1, len(value)) + value
    parts = [_NULL if value is None else _length(len(value)) + value for value in values]
    return b"".join([_header(1, 1, kind, len(parts), 1), *parts])


_LOADERS: dict[int, Callable[[bytes], Any]] = {
    BOOL: lambda raw: raw != b"\0",
    BYTEA: bytes,
    INT8: lambda raw: _INT8.unpack(raw)[0],
    INT4: lambda raw: _INT4.unpack(raw)[0],
    TEXT: _load_text,
}


def load(result: PGresult) -> list[tuple[Any, ...]]:
    """The rows of a result."""
    columns = [(column, _LOADERS[result.ftype(column)]) for column in range(result.nfields)]
    get = result.get_value
    return [
        tuple([None if (raw := get(row, column)) is None else loader(raw) for column, loader in columns])
        for row in range(result.ntuples)
    ]

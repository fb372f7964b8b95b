"""Values as PostgreSQL's binary format has them: text, 64-bit numbers, bytes, and arrays of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any

from psycopg.pq.abc import PGresult

from onward.errors import InvalidInput

BOOL, BYTEA, INT8, INT4, TEXT = 16, 17, 20, 23, 25
Value = int | str | bytes | None

# PostgreSQL's text holds every character but NUL. NUL is written as the last character there is and a zero,
# and that character, which nobody uses, as itself and a one; so every text comes back as it was.
MARK = "\U0010ffff".encode()

_number = Struct("!q")
_numbered = Struct("!iq")
_length = Struct("!i")
_header = Struct("!iiiii")
_NULL = _length.pack(-1)
_EIGHT = 8


def dump(value: Value) -> bytes | None:
    """A value as a parameter."""
    match value:
        case str():
            return _text(value)
        case int():
            return _number.pack(value)
        case _:
            return value


def _text(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{value!r} holds half of a character (a lone surrogate).") from None
    if b"\0" in raw or MARK in raw:
        return raw.replace(MARK, MARK + b"1").replace(b"\0", MARK + b"0")
    return raw


def _load_text(raw: bytes) -> str:
    if MARK in raw:
        raw = raw.replace(MARK + b"0", b"\0").replace(MARK + b"1", MARK)
    return raw.decode()


def texts(values: Iterable[str | None]) -> bytes:
    """An array of texts."""
    return _array(TEXT, [None if value is None else _text(value) for value in values])


def byteas(values: Iterable[bytes | None]) -> bytes:
    """An array of byte strings."""
    return _array(BYTEA, list(values))


def numbers(values: Iterable[int | None]) -> bytes:
    """An array of 64-bit numbers."""
    items = [_NULL if value is None else _numbered.pack(_EIGHT, value) for value in values]
    return _start(INT8, len(items)) + b"".join(items)


def _array(kind: int, values: Sequence[bytes | None]) -> bytes:
    parts = [_start(kind, len(values))]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_length.pack(len(value)), value)
    return b"".join(parts)


def _start(kind: int, length: int) -> bytes:
    # One dimension, perhaps with NULLs, counted from one.
    return _header.pack(1, 1, kind, length, 1)


_LOADERS: dict[int, Callable[[bytes], Any]] = {
    BOOL: lambda raw: raw != b"\0",
    BYTEA: bytes,
    INT8: lambda raw: _number.unpack(raw)[0],
    INT4: lambda raw: _length.unpack(raw)[0],
    TEXT: _load_text,
}


def load(result: PGresult) -> list[tuple[Any, ...]]:
    """The rows of a result."""
    loaders = [_LOADERS[result.ftype(column)] for column in range(result.nfields)]
    get = result.get_value
    return [
        tuple(
            None if (raw := get(row, column)) is None else loader(raw)
            for column, loader in enumerate(loaders)
        )
        for row in range(result.ntuples)
    ]

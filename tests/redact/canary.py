"""Secrets that must be found nowhere, and where to look for it: databases, directories, what was printed.

Whatever stores or prints something new adds its place: `look` takes any bytes by the name of the place.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, quote_plus

import apsw
import psycopg
import zstandard
from psycopg import sql

NAME = "CANARY_TOKEN"
CANARY = 'kanari/+"vogel\\9&ü 5f0c7d"e1'
PROVIDER_KEY = "papagei/0123456789~abcdef+="
"""One that no variable has: a file has it, which the settings name."""
ZSTD = b"\x28\xb5\x2f\xfd"


def needles(secret: str) -> dict[str, bytes]:
    """A secret as programs print it, and its beginning and its end, which a text that was cut may have.

    Not by the code that is tested.
    """
    raw = secret.encode()
    found = {"raw": raw, "its beginning": raw[:10], "its end": raw[-10:]}
    found["in JSON"] = json.dumps(secret)[1:-1].encode()
    found["in JSON, not only ASCII"] = json.dumps(secret, ensure_ascii=False)[1:-1].encode()
    found["in a URL"], found["in a form"] = quote(secret, safe="").encode(), quote_plus(secret).encode()
    found["as Python shows it"] = repr(secret)[1:-1].encode()
    for before in range(3):
        encoded = base64.b64encode(b"?" * before + raw + b"??")
        found[f"in base64, {before} after a beginning"] = encoded[4:-8]
        found[f"in base64 for URLs, {before} after a beginning"] = base64.urlsafe_b64encode(
            b"?" * before + raw + b"??"
        )[4:-8]
    return found


def look(places: Mapping[str, bytes]) -> list[str]:
    """Where the secrets are, and in which form; nowhere is as it should be."""
    return [
        f"{place}: {form}"
        for place, content in places.items()
        for secret in (CANARY, PROVIDER_KEY)
        for form, needle in needles(secret).items()
        if needle in content
    ]


def directory(path: Path, *, without: frozenset[str] = frozenset()) -> dict[str, bytes]:
    """Every file below a directory, a database and its WAL among them, but those of these names."""
    found = {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name not in without
    }
    return {**found, **{f"{name}, unpacked": unpacked(content) for name, content in found.items()}}


def database(db: str) -> dict[str, bytes]:
    """Every value of every table."""
    rows = _postgres(db) if "://" in db else _sqlite(db)
    found: dict[str, bytes] = {}
    for number, (table, value) in enumerate(rows):
        content = bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
        found[f"{table}, value {number}"] = unpacked(content)
    return found


def unpacked(content: bytes) -> bytes:
    """Large values and exports may be compressed."""
    if not content.startswith(ZSTD):
        return content
    return zstandard.ZstdDecompressor().decompressobj().decompress(content)


@contextmanager
def kept_open(db: str) -> Iterator[None]:
    """Inside, a reader keeps SQLite from emptying its WAL; the file must be in the look."""
    if "://" in db:
        yield
        return
    connection = apsw.Connection(db)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        yield
        assert Path(f"{db}-wal").stat().st_size > 0
    finally:
        connection.close()


def _sqlite(path: str) -> Iterator[tuple[str, object]]:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield from ((str(table), value) for value in row)
    finally:
        connection.close()


def _postgres(url: str) -> Iterator[tuple[str, object]]:
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            for row in connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))):
                yield from ((table, value) for value in row)

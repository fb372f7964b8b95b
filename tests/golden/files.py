"""A golden database as files: a folder for each version, small, and independent of any tool's format.

- `sqlite.tar.xz`: the database, and the directories of its runs;
- `postgres.sql.xz`: the schema of that version, then the rows as COPY text;
- `manifest.json`: how each run stands, and what must become of it.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import apsw
import psycopg
from psycopg import sql

from onward.store.queries import load_migrations, load_queries

FOLDER = Path(__file__).parent
VERSIONS = tuple(sorted(path.name for path in FOLDER.iterdir() if (path / "manifest.json").is_file()))
TABLES = (
    "run",
    "event",
    "append",
    "snapshot",
    "blob",
    "ceiling",
    "effect",
    "identity",
    "stuck",
    "gate",
    "backfill",
    "worker",
)
COPY = re.compile(r"^COPY (\w+) \(([^)]+)\) FROM stdin;\n(.*?)^\\\.\n", re.MULTILINE | re.DOTALL)
END = "-- rows\n"


def read_manifest(version: str) -> dict[str, Any]:
    """What is said about the runs of a version's database."""
    manifest: dict[str, Any] = json.loads((FOLDER / version / "manifest.json").read_text())
    return manifest


def write_manifest(version: str, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False)
    (FOLDER / version / "manifest.json").write_text(text + "\n")


def pack_sqlite(version: str, db: str) -> None:
    """Keep a database that no process has open, and what its runs left beside it."""
    small = f"{db}.small"
    connection = apsw.Connection(db)
    connection.execute("VACUUM INTO ?", (small,))
    connection.close()
    with (
        lzma.open(FOLDER / version / "sqlite.tar.xz", "wb", preset=9) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        tar.add(small, "onward.db", filter=_plain)
        if os.path.isdir(f"{db}-runs"):
            tar.add(f"{db}-runs", "onward.db-runs", filter=_plain)
    os.unlink(small)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of the machine on which it was made."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def unpack_sqlite(version: str, directory: Path) -> str:
    """The database of a version, to be opened below `directory`."""
    content = lzma.decompress((FOLDER / version / "sqlite.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(directory, filter="data")
    db = directory / "onward.db"
    db.chmod(0o600)
    return str(db)


def pack_postgres(version: str, url: str) -> None:
    """Keep a database's rows on top of the schema that this version makes."""
    package = "onward.store.postgres"
    parts = [load_queries(package)["migrations_table"].rstrip() + ";\n"]
    parts += [script for _, _, script in load_migrations(package)]
    parts.append("DELETE FROM identity;\n" + END)  # a migration has made one
    with psycopg.connect(url) as connection:
        parts += [_copied_out(connection, table) for table in ("migration", *TABLES)]
    packed = lzma.compress("".join(parts).encode(), preset=9)
    (FOLDER / version / "postgres.sql.xz").write_bytes(packed)


def _copied_out(connection: psycopg.Connection[Any], table: str) -> str:
    found = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
        "ORDER BY attnum",
        (table,),
    ).fetchall()
    columns = [name for (name,) in found]
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    query = sql.SQL("COPY (SELECT {0} FROM {1} ORDER BY {0}) TO STDOUT").format(names, sql.Identifier(table))
    with connection.cursor() as cursor, cursor.copy(query) as rows:
        text = b"".join(bytes(part) for part in rows).decode()
    return f"COPY {table} ({', '.join(columns)}) FROM stdin;\n{text}\\.\n"


def unpack_postgres(version: str, url: str) -> None:
    """Fill an empty database as the script says."""
    script = lzma.decompress((FOLDER / version / "postgres.sql.xz").read_bytes()).decode()
    schema, _, rows = script.partition(END)
    with psycopg.connect(url) as connection:
        connection.execute(schema.encode())
        for table, columns, text in COPY.findall(rows):
            names = sql.SQL(", ").join(map(sql.Identifier, columns.split(", ")))
            query = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
            with connection.cursor() as cursor, cursor.copy(query) as copy:
                copy.write(text)

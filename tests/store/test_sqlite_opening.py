"""Opening a SQLite file: only what is ours and safe, made privately, by many at once, and never half."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from onward.errors import SchemaTooNew, StoreCorrupt, StoreError, StoreReadOnly, StoreUnavailable
from onward.model.run import FOLD_VERSION
from onward.store.sqlite.adapter import SqliteStore
from onward.store.sqlite.connection import open_database
from onward.store.sqlite.statements import MIGRATIONS
from tests.chance import places
from tests.conformance.drafts import created, held, log_of, stepped

NOBODY = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_everything_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    """K23."""
    path = tmp_path / "new" / "deep" / "onward.db"
    store = SqliteStore(str(path))
    await held(store)
    assert [mode(directory) for directory in (path.parent.parent, path.parent)] == [0o700, 0o700]
    made = sorted(path.parent.iterdir())
    assert [file.name for file in made] == [
        "onward.db",
        "onward.db-shm",
        "onward.db-wal",
        "onward.db-workers",
    ]
    assert [mode(file) for file in made] == [0o600, 0o600, 0o600, 0o700]
    await store.close()


async def test_every_connection_is_set_up_for_safety(tmp_path: Path) -> None:
    opened: list[apsw.Connection] = []

    def connect(path: str) -> apsw.Connection:
        opened.append(apsw.Connection(path))
        return opened[-1]

    for _ in range(2):
        store = SqliteStore(str(tmp_path / "onward.db"), connect=connect)
        settings = ("journal_mode", "synchronous", "foreign_keys", "trusted_schema", "busy_timeout")
        found = [opened[-1].execute(f"PRAGMA {setting}").get for setting in settings]
        assert found == ["wal", 2, 1, 0, 0]
        await store.close()


async def test_a_store_that_was_closed_says_so(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "onward.db"))
    run = await held(store)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        await store.log.load(run.id, fold_version=FOLD_VERSION)
    with pytest.raises(StoreUnavailable, match="was closed"):
        await stepped(store, run)


def refused(path: Path) -> StoreError:
    """The error of opening this file, which must leave it as it was."""
    before = path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else None
    with pytest.raises(StoreError) as raised:
        SqliteStore(str(path), busy_s=0.1)
    assert str(path) in str(raised.value)
    if before is not None:
        assert path.read_bytes() == before
    return raised.value


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    """K23."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert type(refused(tmp_path / "link")) is StoreUnavailable
    assert not (tmp_path / "target").exists()
    (tmp_path / "target").touch()
    assert "symbolic link" in str(refused(tmp_path / "link"))
    assert (tmp_path / "target").read_bytes() == b""


@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, bit: int) -> None:
    """K23."""
    path = tmp_path / "onward.db"
    path.touch()
    path.chmod(0o600 | bit)
    assert f"chmod 600 {path}" in str(refused(path))


def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = Path("/etc/passwd")
    if os.getuid() == 0:
        path = tmp_path / "onward.db"
        path.touch()
        os.chown(path, NOBODY, NOBODY)
    assert "belongs to another user" in str(refused(path))


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "directory", tmp_path / "pipe"):
        assert "is not a file" in str(refused(path))
    assert type(refused(tmp_path / "file" / "onward.db")) is StoreUnavailable


@pytest.mark.parametrize("path", ["/sys/onward.db", "/sys/new/onward.db"])
def test_a_place_that_cannot_be_written_is_told_as_such(path: str) -> None:
    assert type(refused(Path(path))) is StoreReadOnly


@pytest.mark.parametrize("content", [b"not a database, but long enough to be one" * 30, b"\0" * 5000, b"xy"])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "onward.db"
    path.write_bytes(content)
    path.chmod(0o600)
    error = refused(path)
    assert type(error) is StoreCorrupt
    assert "--db" in str(error)


@pytest.mark.parametrize(
    "tables",
    [["photo (name TEXT)"], ["migration (name TEXT)"], ["migration (number INTEGER)", "photo (name TEXT)"]],
)
def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path, tables: list[str]) -> None:
    path = tmp_path / "photos.db"
    db = apsw.Connection(str(path))
    for table in tables:
        db.execute(f"CREATE TABLE {table}")
    db.close()
    path.chmod(0o600)
    assert "another program's database" in str(refused(path))


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    """K7."""
    path = tmp_path / "onward.db"
    await SqliteStore(str(path)).close()
    db = apsw.Connection(str(path))
    db.execute("INSERT INTO migration (number, name, applied_at_us) VALUES (999, 'from_the_future', 0)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew) as raised:
        SqliteStore(str(path))
    assert (raised.value.found, raised.value.known) == (999, MIGRATIONS[-1][0])
    assert path.read_bytes() == before


async def test_a_read_only_database_can_be_looked_at_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    store = SqliteStore(str(path))
    run = await held(store)
    reader = SqliteStore(str(path), connect=read_only)
    assert len(await log_of(reader, run.id)) == run.position.seq
    with pytest.raises(StoreReadOnly, match="cannot be written"):
        await created(reader)
    with pytest.raises(StoreReadOnly, match="cannot be written"):
        await stepped(reader, run)
    await stepped(store, run)
    await reader.close()
    await store.close()


def read_only(path: str) -> apsw.Connection:
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)


# As somebody whom permissions bind, which root is not.
AS_A_USER = """
import asyncio, os, sys
from onward.errors import StoreError
from onward.store.sqlite.adapter import SqliteStore
from tests.conformance.drafts import held

async def tried(path, run_id):
    try:
        store = SqliteStore(path, busy_s=0.1)
        try:
            await held(store, run_id)
        finally:
            await store.close()  # a connection left open would keep its read-only view of the file
        print("stored", end=" ")
    except StoreError as error:
        print(type(error).__name__, end=" ")

path, uid = sys.argv[1], int(sys.argv[2])
asyncio.run(tried(path + "-as-root", "kept"))  # loads all modules, which the user may not be able to read
if os.getuid() == 0:
    os.chown(os.path.dirname(path), uid, uid)
    os.setgid(uid)
    os.setuid(uid)
asyncio.run(tried(path, "kept"))
for place, bits in ((os.path.dirname(path), 0o500), (path, 0o400)):
    os.chmod(place, bits)
    asyncio.run(tried(path, "refused"))
    os.chmod(place, bits | 0o200)
asyncio.run(tried(path, "refused"))
"""


def test_permissions_taken_away_are_a_clear_error_and_nothing_is_lost() -> None:
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-c", AS_A_USER, f"{directory}/onward.db", str(NOBODY)],
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr == ""
    assert done.stdout.split() == ["stored", "stored", "StoreReadOnly", "StoreReadOnly", "stored"]


def started(work: Callable[[], object]) -> int:
    """The pid of a process that does `work` and exits with 0, or 1 if it raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def test_a_database_opened_for_the_first_time_by_many_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "onward.db"
    go_read, go_write = os.pipe()

    def open_when_told() -> None:
        os.read(go_read, 1)
        asyncio.new_event_loop().run_until_complete(SqliteStore(str(path)).close())

    children = [started(open_when_told) for _ in range(10)]
    os.write(go_write, bytes(10))
    assert [exit_code(child) for child in children] == [0] * 10
    os.close(go_read)
    os.close(go_write)
    store = SqliteStore(str(path))
    assert ("schema", True, f"schema {MIGRATIONS[-1][0]}") in await store.check()
    assert ("integrity", True, "ok") in await store.check()
    await created(store)
    await store.close()


class Beaten(apsw.Connection):
    """A connection that finds somebody else changing the file to WAL just when it wants to."""

    times = 1

    def execute(self, statements: str, *arguments: Any, **options: Any) -> apsw.Cursor:
        if statements == "PRAGMA journal_mode = WAL" and self.times:
            self.times -= 1
            raise apsw.BusyError("database is locked")
        return super().execute(statements, *arguments, **options)


async def test_a_process_that_is_beaten_to_the_change_of_a_new_file_tries_again(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "onward.db"), connect=Beaten)
    assert ("durability", True, "journal_mode=wal, synchronous=2") in await store.check()
    await store.close()


class Overtaken(apsw.Connection):
    """A connection whose file somebody else makes whole just before its statement number `at`."""

    def __init__(self, path: str, at: int) -> None:
        super().__init__(path)
        self._path, self._left = path, at

    def execute(self, statements: str, *arguments: Any, **options: Any) -> apsw.Cursor:
        self._left -= 1
        if not self._left:
            assert not self.in_transaction, "then nobody else can write"
            open_database(self._path, busy_s=0.1).close()
        return super().execute(statements, *arguments, **options)


@pytest.mark.parametrize(
    "at", range(1, 10)
)  # the tenth is the first of the transaction that makes the schema
async def test_a_file_that_another_process_makes_meanwhile_is_opened(tmp_path: Path, at: int) -> None:
    """Whatever has been asked about the file before that: it is never taken for another program's."""
    store = SqliteStore(str(tmp_path / "onward.db"), connect=partial(Overtaken, at=at))
    await created(store)
    assert ("integrity", True, "ok") in await store.check()
    await store.close()


class Mortal(apsw.Connection):
    """A connection whose process is killed before its statement number `dies_at`."""

    dies_at = 0

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._left = self.dies_at
        self.exec_trace = self._count

    def _count(self, *_: object) -> bool:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


@pytest.mark.slow
async def test_a_process_killed_while_it_makes_the_schema_leaves_all_of_it_or_nothing(tmp_path: Path) -> None:
    for dies_at in places(5):
        path = tmp_path / f"{dies_at}.db"
        Mortal.dies_at = dies_at
        code = exit_code(started(partial(SqliteStore, str(path), connect=Mortal)))
        store = SqliteStore(str(path))
        await created(store)
        assert ("integrity", True, "ok") in await store.check()
        await store.close()
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert dies_at > 20, "the schema alone has more statements than this"

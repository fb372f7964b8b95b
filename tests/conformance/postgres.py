"""PostgreSQL servers as they are found in production: behind a pooler, and with a standby.

    with PostgresServer() as server, PgBouncer(server) as pooler:
        url = pooler.url(server.create_database())

Many clients of PgBouncer share few server connections. In transaction mode a client has a server connection
only during a transaction. Session settings, prepared statements and LISTEN stay with that connection, for its
next client.

    with PostgresServer() as primary, PostgresStandby(primary) as standby:
        standby.catch_up()
        standby.promote()

A standby is a second server that copies the first one as it is written, and can replace it. Stop the standby
before its primary: a primary that ends cleanly waits for its standbys.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psycopg

from onward.errors import StoreUnavailable
from onward.testing import leash
from onward.testing.postgres import (
    FOR_STANDBYS,
    STOP_S_MAX,
    PostgresServer,
    account_for_root,
    free_port,
    scratch_directory,
    wait_ready,
)

PLACES = f"{os.defpath}:/usr/sbin:/usr/local/sbin"


def find_pgbouncer() -> Path | None:
    """The program, if the system has it."""
    found = shutil.which("pgbouncer", path=PLACES)
    return Path(found) if found else None


class PgBouncer:
    """A pooler of our own on loopback; a context manager. `size` server connections for each database."""

    def __init__(self, server: PostgresServer, *, mode: str = "transaction", size: int = 2) -> None:
        self._server, self._mode, self._size = server, mode, size
        self._account = account_for_root()
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def url(self, url: str) -> str:
        """The address of a database of the server through the pooler."""
        return url.replace(f"@127.0.0.1:{urlsplit(url).port}", f"@127.0.0.1:{self._port}")

    def __enter__(self) -> Self:
        program = find_pgbouncer()
        if program is None:
            raise StoreUnavailable("pgbouncer was not found; install your system's package of that name.")
        self._directory, self._port = scratch_directory(self._account), free_port()
        try:
            self._process = subprocess.Popen(
                leash.command(program, [str(self._configuration())], uid_gid=self._account),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            if error := wait_ready(self.url(self._server.url()), self._process):
                raise StoreUnavailable(f"pgbouncer did not start: {error}") from error
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the pooler, and remove its files."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory)
            self._directory = None

    def _configuration(self) -> Path:
        assert self._directory is not None
        login = urlsplit(self._server.url())
        users, file = self._directory / "users", self._directory / "pgbouncer.ini"
        users.write_text(f'"{login.username}" "{login.password}"\n')
        file.write_text(
            f"[databases]\n* = host=127.0.0.1 port={login.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            f"auth_type = plain\nauth_file = {users}\nlogfile = {self._directory / 'log'}\n"
            f"pool_mode = {self._mode}\ndefault_pool_size = {self._size}\nserver_login_retry = 1\n"
        )
        for path in (users, file):
            path.chmod(0o600)
            if self._account:
                os.chown(path, *self._account)
        return file


CATCH_UP_S_MAX = 30.0


class PostgresStandby(PostgresServer):
    """A server that begins as a copy of a running `primary` and follows it; read-only until `promote`."""

    def __init__(self, primary: PostgresServer, *, fsync: bool = True) -> None:
        settings = {"primary_conninfo": primary.url()}
        super().__init__(fsync=fsync, binaries=primary._binaries, settings=settings)
        self._primary, self._password = primary, primary._password

    def promote(self) -> None:
        """Become a primary; returns when it can be written."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def catch_up(self) -> None:
        """Return when everything that the primary has committed is here."""
        with (
            psycopg.connect(self._primary.url(), autocommit=True) as there,
            psycopg.connect(self.url(), autocommit=True) as here,
        ):
            wanted = there.execute("SELECT pg_current_wal_lsn()").fetchone()
            assert wanted is not None
            give_up_at = time.monotonic() + CATCH_UP_S_MAX
            while here.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", wanted).fetchone() != (True,):
                if time.monotonic() > give_up_at:
                    raise StoreUnavailable("the standby does not catch up with its primary.")
                time.sleep(0.01)

    def _initialize(self) -> None:
        data = self.directory / "data"
        given = (f"--dbname={self._primary.url()}", f"--pgdata={data}", "--checkpoint=fast", "--no-sync")
        self._run(FOR_STANDBYS, given)
        (data / "standby.signal").touch()

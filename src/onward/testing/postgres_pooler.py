"""PgBouncer in front of a PostgreSQL server: many clients share few server connections.

    with PostgresServer() as server, PgBouncer(server) as pooler:
        url = pooler.url(server.create_database())

In transaction mode a client has a server connection only during a transaction. Session settings, prepared
statements and LISTEN stay with that connection, for its next client.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from onward.errors import StoreUnavailable
from onward.testing import leash
from onward.testing.postgres import STOP_S_MAX, PostgresServer, free_port, scratch_directory, wait_ready
from onward.testing.postgres_binaries import account_for_root

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

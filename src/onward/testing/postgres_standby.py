"""A standby: a second PostgreSQL server that copies the first one as it is written, and can replace it.

    with PostgresServer() as primary, PostgresStandby(primary) as standby:
        standby.catch_up()
        standby.promote()

Stop the standby before its primary: a primary that ends cleanly waits for its standbys.
"""

from __future__ import annotations

import time

import psycopg

from onward.errors import StoreUnavailable
from onward.testing.postgres import PostgresServer
from onward.testing.postgres_binaries import FOR_STANDBYS

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

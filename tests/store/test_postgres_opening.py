"""Opening a PostgreSQL database: by many at once, only if it is ours, and without telling the password."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from onward.errors import SchemaTooNew, StoreError, StoreReadOnly, StoreUnavailable
from onward.model.run import FOLD_VERSION
from onward.store.postgres.adapter import PostgresStore
from onward.store.postgres.connection import Address, connect
from onward.store.postgres.pool import Wire
from onward.store.postgres.statements import MIGRATIONS, UNSYNCED, Call, parse
from onward.testing.postgres import PostgresServer
from tests.conformance.drafts import created, held, log_of, stepped
from tests.store.proxy import Proxy

pytestmark = [pytest.mark.postgres, pytest.mark.anyio]
NEWEST = MIGRATIONS[-1][0]
IN_FORCE = Call(parse("in_force", "SELECT current_setting('synchronous_commit')"), ())

OPEN = """
import asyncio, sys
from onward.store.postgres.adapter import PostgresStore
async def main():
    sys.stdin.readline()
    store = await PostgresStore.open(sys.argv[1])
    await store.close()
print("ready", flush=True)
asyncio.run(main())
"""


async def ask(url: str, statement: str, *values: Any) -> list[Any]:
    """Run SQL beside the store."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode(), values)
        return await cursor.fetchall() if cursor.description else []


async def refused(url: str, **options: Any) -> StoreError:
    with pytest.raises(StoreError) as raised:
        await PostgresStore.open(url, **options)
    return raised.value


async def test_twenty_that_start_at_once_migrate_once(postgres_url: str) -> None:
    stores = await asyncio.gather(*(PostgresStore.open(postgres_url) for _ in range(20)))
    assert await ask(postgres_url, "SELECT number FROM migration") == [(n,) for n, *_ in MIGRATIONS]
    for store in stores:
        run = await stepped(store, await held(store))
        assert len(await log_of(stores[0], run.id)) == 4
    for store in stores:
        await store.close()


async def started(url: str) -> asyncio.subprocess.Process:
    """A process that opens a store as soon as it is sent a line."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", OPEN, url, stdin=PIPE, stdout=PIPE, env=environment
    )


@pytest.mark.slow
async def test_processes_that_start_at_once_migrate_once(postgres_url: str) -> None:
    processes = [await started(postgres_url) for _ in range(6)]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    await asyncio.gather(*(process.communicate(b"\n") for process in processes))
    assert [process.returncode for process in processes] == [0] * 6
    assert await ask(postgres_url, "SELECT number FROM migration") == [(n,) for n, *_ in MIGRATIONS]


async def test_a_migration_that_fails_leaves_nothing_behind(postgres_url: str) -> None:
    await ask(postgres_url, "CREATE TABLE snapshot (theirs int)")  # the last but one that ours would make
    refusal = await refused(postgres_url)
    assert isinstance(refusal, StoreUnavailable)
    assert "another program's tables" in str(refusal)
    assert await ask(
        postgres_url, "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    ) == [("snapshot",)]
    await ask(postgres_url, "DROP TABLE snapshot")
    store = await PostgresStore.open(postgres_url)
    await created(store)
    await store.close()


async def test_another_programs_migration_table_is_not_taken_for_ours(postgres_url: str) -> None:
    await ask(postgres_url, "CREATE TABLE migration (version text)")
    assert "another program's tables" in str(await refused(postgres_url))


async def test_a_newer_schema_is_refused_and_left_alone(postgres_url: str) -> None:
    await (await PostgresStore.open(postgres_url)).close()
    await ask(postgres_url, "INSERT INTO migration VALUES (%s, 'future', 0)", NEWEST + 1)
    refusal = await refused(postgres_url)
    assert isinstance(refusal, SchemaTooNew)
    assert (refusal.found, refusal.known) == (NEWEST + 1, NEWEST)
    assert len(await ask(postgres_url, "SELECT 1 FROM migration")) == NEWEST + 1


async def test_a_role_that_may_only_write_rows_is_enough_for_a_database_that_is_up_to_date(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    role = f"role_{postgres_url.rpartition('_')[2]}"
    await ask(postgres_url, f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    url = postgres_url.replace(postgres_url.partition("//")[2].partition("@")[0], f"{role}:secret")
    try:
        refusal = await refused(url)
        assert isinstance(refusal, StoreReadOnly)
        assert "with a role that owns its tables" in str(refusal)
        await (await PostgresStore.open(postgres_url)).close()
        await ask(postgres_url, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        store = await PostgresStore.open(url)
        assert ("rights", False) in [finding[:2] for finding in await store.check()]
        with pytest.raises(StoreReadOnly, match="is not allowed to do this"):
            await created(store)
        await ask(postgres_url, f"GRANT INSERT ON ALL TABLES IN SCHEMA public TO {role}")
        changed = "run, gate, snapshot, blob, stuck, worker, outbox, subscriber, scope, reservation, usage"
        await ask(postgres_url, f"GRANT UPDATE ON {changed}, chat, message, principal, audit TO {role}")
        await ask(postgres_url, f"GRANT DELETE ON worker, chunk TO {role}")
        assert ("rights", True) in [finding[:2] for finding in await store.check()]
        run = await stepped(store, await held(store), text="x" * 10_000)
        assert len(await log_of(store, run.id)) == 4
        await store.close()
    finally:
        await ask(postgres_url, f"DROP OWNED BY {role}")
        await ask(postgres_url, f"DROP ROLE {role}")


START = "start the server, or correct the host and port in the address"
LOGIN = "correct the role and the password in the address"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (":{port}/", ":1/", f"Connection refused; {START}"),
        ("127.0.0.1:{port}/", "127.0.0.1:1,127.0.0.1:2/", f"127.0.0.1:2: Connection refused; {START}"),
        ("127.0.0.1:{port}/{name}", "/x?host=/nowhere", f"No such file or directory; {START}"),
        (":{password}@", ":wrong-secret@", f'password authentication failed for user "postgres"; {LOGIN}'),
        (":{password}@", "@", f"no password supplied; {LOGIN}"),
        ("postgres:{password}@", "nobody:x@", f'password authentication failed for user "nobody"; {LOGIN}'),
        (
            "/{name}",
            "/nowhere",
            'database "nowhere" does not exist; create it with `createdb`, or name another in the address',
        ),
        ("127.0.0.1", "no-such-host.invalid", "; correct the host and port in the address"),
        ("{port}", "99999", 'invalid port number: "99999"; correct the host and port in the address'),
        (
            "/{name}",
            "/{name}?sslmode=require",
            "SSL was required; correct sslmode in the address, or set up TLS",
        ),
    ],
)
async def test_a_server_that_cannot_be_reached_is_named_without_the_password(
    postgres_url: str, old: str, new: str, says: str
) -> None:
    """One sentence: what, where, why, and what to do."""
    login, _, place = postgres_url.partition("//")[2].partition("@")
    password, port, name = login.partition(":")[2], place[10:].partition("/")[0], place.partition("/")[2]
    given = {"password": password, "port": port, "name": name}
    url = postgres_url.replace(old.format(**given), new.format(**given))
    assert url != postgres_url
    refusal = str(await refused(url))
    assert refusal.startswith("cannot connect to PostgreSQL database '")
    assert says in refusal
    assert refusal.endswith(".")
    assert not re.search(r"[.?!;:,] ?[.?!;:,]|[.?!] [A-Z]|\n|connection to server", refusal), refusal
    assert password not in refusal
    assert "wrong-secret" not in refusal


async def test_a_server_that_is_too_old_is_refused_with_what_is_needed(postgres_url: str) -> None:
    """A real server, whose greeting is altered on its way: it calls itself version 13."""
    async with Proxy(postgres_url) as proxy:
        proxy.alter = lambda data: re.sub(rb"(server_version\0)\d\d", rb"\g<1>13", data)
        refusal = str(await refused(proxy.url))
    assert re.fullmatch(
        r"PostgreSQL database 'onward_\w+' on 127\.0\.0\.1:\d+ is version 13; use PostgreSQL 14 or newer\.",
        refusal,
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:se/cret@host/db",
        "postgresql://me:s@cret@host/db",
        "postgresql://me:%secret@host/db",
        "postgresql://me:secret@host:cret/db",
        "postgresql://me:secret@host/db?cret=1",
        "postgresql://me:secret@[::1/db",
    ],
)
def test_an_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="write postgresql://user:password@host") as raised:
        Address.parse(url)
    assert "cret@" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://me:secret@db.example:5433/runs", "'runs' on db.example:5433"),
        ("postgres:///runs", "'runs' on this machine"),
        ("postgresql://me@/runs?host=/tmp/socket", "'runs' on /tmp/socket"),
        ("postgresql://me@[::1]/", "'me' on ::1"),
        ("postgresql://a:1,b:2/runs", "'runs' on a:1 or b:2"),
        ("host=a,b port=7 dbname=runs", "'runs' on a:7 or b:7"),
    ],
)
def test_an_address_is_named_for_people(url: str, place: str) -> None:
    assert Address.parse(url).place == f"PostgreSQL database {place}"


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://a:1/runs", None),
        ("postgresql://a:1,b:2/runs", "read-write"),
        ("host=a,b dbname=runs", "read-write"),
        ("postgresql://a:1,b:2/runs?target_session_attrs=any", "any"),
    ],
)
def test_of_several_servers_the_one_that_can_be_written_is_wanted(url: str, wanted: str | None) -> None:
    """With one, our own words say that it is read-only, and it can still be read."""
    assert conninfo_to_dict(Address.parse(url).conninfo).get("target_session_attrs") == wanted


async def test_a_database_that_cannot_hold_every_text_is_refused(postgres_server: PostgresServer) -> None:
    await ask(postgres_server.url(), "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    try:
        assert "encoded in LATIN1" in str(await refused(postgres_server.url("latin")))
    finally:
        await ask(postgres_server.url(), "DROP DATABASE latin")


async def test_a_store_that_was_closed_says_so(postgres_url: str) -> None:
    store = await PostgresStore.open(postgres_url)
    run = await held(store)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        await store.log.load(run.id, fold_version=FOLD_VERSION)
    with pytest.raises(StoreUnavailable, match="was closed"):
        await stepped(store, run)


async def test_closing_hangs_up(postgres_url: str) -> None:
    store = await PostgresStore.open(postgres_url)
    run = await held(store)
    await asyncio.gather(store.leases.renew([run.lease]), *(store.runs.count() for _ in range(10)))
    others = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'"  # and no autovacuum
    )
    async with asyncio.timeout(60):  # the server notices in its own time that somebody hung up
        while not 3 <= len(await ask(postgres_url, others)) <= 6:
            pass
        await store.close()
        while await ask(postgres_url, others):
            pass


async def test_a_commit_waits_for_the_disk_even_where_the_server_would_not(postgres_url: str) -> None:
    (name,) = (await ask(postgres_url, "SELECT current_database()"))[0]
    await ask(postgres_url, f"ALTER DATABASE {name} SET synchronous_commit = off")
    store = await PostgresStore.open(postgres_url)
    says = {subject: words for subject, _, words in await store.check()}
    assert says["durability"].endswith("synchronous_commit=on")
    await store.close()
    wire = Wire(await connect(Address.parse(postgres_url)))
    assert await wire.run(IN_FORCE) == [[("on",)]]
    wire.close()


async def test_only_the_transaction_of_a_renewal_does_not_wait_for_the_disk(postgres_url: str) -> None:
    wire = Wire(await connect(Address.parse(postgres_url)))
    assert await wire.run(UNSYNCED, IN_FORCE) == [[("off",)], [("off",)]]
    assert await wire.run(IN_FORCE) == [[("on",)]]
    wire.close()


async def test_what_the_driver_says_of_a_session_that_ends_is_for_logs_and_not_for_a_terminal() -> None:
    """Its queries are cancelled when a command ends; the driver warns of a session that it closes then."""
    words = (
        "import logging, onward.store.postgres.connection; logging.getLogger('psycopg').warning('closing')"
    )
    for logs, said in (("", b""), ("import logging; logging.basicConfig(); ", b"WARNING:psycopg:closing\n")):
        done = await asyncio.create_subprocess_exec(sys.executable, "-c", logs + words, stderr=PIPE)
        _, err = await done.communicate()
        assert err == said

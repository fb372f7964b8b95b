"""Behind a real pgbouncer in transaction mode: everything works, and what was acknowledged is never lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onward.model.events import RunPaused
from onward.store.postgres.adapter import PostgresStore
from onward.store.postgres.connection import SESSION, Address, connect
from onward.store.postgres.pool import Wire
from onward.store.postgres.statements import BEGIN, Call, parse
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.cli.shell import Shell, pipeline
from tests.conformance import imports, measures, queue, requests
from tests.conformance.drafts import Draft, created, held, log_of, requested, step, stepped
from tests.conformance.postgres import PgBouncer, find_pgbouncer
from tests.conformance.processes import Connect
from tests.conftest import Counted

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.anyio]
SIZE = 2
RUNS, STEPS = 6, 40
# The chapters of the conformance suite in which transactions take several trips.
for _chapter in (imports, requests, measures, queue):
    globals().update({name: test for name, test in vars(_chapter).items() if name.startswith("test_")})


@pytest.fixture(scope="module", autouse=True)
def pgbouncer() -> None:
    """Root of a Debian system installs it."""
    if find_pgbouncer() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "--yes", "--no-install-recommends", "pgbouncer"]):
            command = ["apt-get", "--quiet", "-o", "DPkg::Lock::Timeout=120", *words]
            subprocess.run(command, env=environment, capture_output=True, check=False)
    if find_pgbouncer() is None:
        pytest.skip("this machine has no pgbouncer, and only root of a Debian system can install it here")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that keeps what it acknowledges, and writes nothing else for as long as it may."""
    with PostgresServer(settings={"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.fixture(scope="module")
def pooler(server: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer(server, size=SIZE) as pooler:
        yield pooler


@pytest.fixture
def direct(server: PostgresServer) -> str:
    """The server's own address of an empty database."""
    return server.create_database()


@pytest.fixture
def pooled(pooler: PgBouncer, direct: str) -> str:
    """The way to it through the pooler."""
    return pooler.url(direct)


@pytest.fixture(scope="module")
def shared_pooler(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer(postgres_server, size=SIZE) as pooler:
        yield pooler


@pytest.fixture(name="connect")
def connect_store(shared_pooler: PgBouncer, postgres_emptied_url: str) -> Connect:
    return lambda: open_store(shared_pooler.url(postgres_emptied_url))


def in_each_session(url: str, statement: str) -> list[list[Any]]:
    """Run SQL in every session that the pooler shares: the rows of each."""
    with ExitStack() as stack:
        found = list[list[Any]]()
        for _ in range(SIZE):
            neighbour = stack.enter_context(psycopg.connect(url, prepare_threshold=None))
            cursor = neighbour.execute(statement.encode())  # in a transaction, which keeps the session
            found.append(cursor.fetchall() if cursor.description else [])
        return found


async def busy(store: PostgresStore) -> Draft:
    """A bit of everything: what a worker and those who ask it for something do."""
    unwatch = await store.watch(lambda: None)
    run = await held(store)
    others = await asyncio.gather(*(held(store) for _ in range(SIZE)))
    await asyncio.gather(*(stepped(store, other) for other in others))
    await asyncio.gather(
        *(store.leases.renew([run.lease]) for _ in range(2 * SIZE)),
        store.runs.count(),
        store.measures.measure(),
    )
    run = await stepped(store, run, times=10)
    await requested(store, await created(store), RunPaused(reason="operator"))
    await unwatch()
    return run


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_a_pooler_is_noticed(server: PostgresServer, direct: str, mode: str) -> None:
    with PgBouncer(server, mode=mode) as pooler:
        for url, is_pooled in ((direct, False), (pooler.url(direct), True)):
            async with await connect(Address.parse(url)) as session:
                assert session.is_pooled is is_pooled


async def test_nothing_is_left_in_the_sessions_that_others_get_next(pooled: str) -> None:
    store = await PostgresStore.open(pooled)
    await busy(store)
    await store.close()
    changed = "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name <> 'application_name'"
    prepared = "SELECT name FROM pg_prepared_statements"
    for statement in (changed, prepared, "SELECT pg_listening_channels()"):
        assert in_each_session(pooled, statement) == [[]] * SIZE


async def test_every_transaction_has_the_settings_it_needs_whatever_others_left(pooled: str) -> None:
    """I1."""
    for name in ("synchronous_commit", "enable_bitmapscan"):
        in_each_session(pooled, f"SET {name} = off; COMMIT; BEGIN")
    names = ("transaction_isolation", *SESSION)
    asked = ", ".join(f"current_setting('{name}')" for name in names)
    in_force, wanted = (
        Call(parse("in_force", f"SELECT {asked}"), ()),
        ("read committed", *SESSION.values()),
    )
    wire = Wire(await connect(Address.parse(pooled)))
    for _ in range(2 * SIZE):
        assert await wire.run(in_force) == [[tuple(value.replace("60s", "1min") for value in wanted)]]
    await wire.run(BEGIN)
    assert await wire.run(in_force) == [[tuple(value.replace("60s", "1min") for value in wanted)]]
    wire.close()


async def test_what_was_acknowledged_survives_an_immediate_shutdown(
    server: PostgresServer, direct: str, pooled: str, count: Counted
) -> None:
    """Though a neighbour left its sessions such that a commit does not wait for the disk. I1."""
    in_each_session(pooled, "SET synchronous_commit = off; COMMIT; BEGIN")
    store = await PostgresStore.open(pooled)
    runs = await asyncio.gather(*(held(store) for _ in range(RUNS)))
    acknowledged = {run.id: run.position.seq for run in runs}
    is_enough = asyncio.Event()

    async def work(run: Draft) -> None:
        while True:
            write, run = run.then(*step(run), with_row=False)
            await store.log.append(write, run.lease)
            acknowledged[run.id] = run.position.seq
            if sum(acknowledged.values()) >= RUNS * STEPS:
                is_enough.set()

    async def renew() -> None:
        while True:
            await store.leases.renew([run.lease for run in runs])

    tasks = [asyncio.create_task(work) for work in (renew(), *map(work, runs))]
    await is_enough.wait()
    told = dict(acknowledged)
    server.restart(immediate=True)  # nothing else runs here meanwhile
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.close()
    witness = await PostgresStore.open(direct)
    found = {run.id: len(await log_of(witness, run.id)) for run in runs}
    await witness.close()
    lost = {run_id: seq - found[run_id] for run_id, seq in told.items() if found[run_id] < seq}
    count(f"{sum(told.values())} events acknowledged through pgbouncer, {sum(found.values())} recovered")
    assert not lost


async def test_doctor_reads_what_is_in_force_where_work_is_acknowledged(pooled: str, direct: str) -> None:
    """I1."""
    in_each_session(pooled, "SET synchronous_commit = off; COMMIT; BEGIN")
    says = dict[str, dict[str, tuple[bool, str]]]()
    for url in (pooled, direct):
        store = await PostgresStore.open(url)
        says[url] = {subject: (is_well, words) for subject, is_well, words in await store.check()}
        await store.close()
    durable = True, "fsync=on, full_page_writes=on, synchronous_commit=on"
    assert says[pooled]["durability"] == says[direct]["durability"] == durable
    assert says[direct]["pooler"] == (True, "none")
    assert says[pooled]["pooler"][0]
    assert "poll for due runs" in says[pooled]["pooler"][1]


def test_a_worker_behind_a_pooler_runs_every_step_once(pooled: str, tmp_path: Path) -> None:
    """I7."""
    shell = Shell(tmp_path, pooled)
    shell.write("job.dot", pipeline(*((name, shell.noting()) for name in ("a", "b", "c"))))
    for number in range(3):
        assert shell.inside("submit", "job.dot", "--run-id", f"job-{number}").code == 0
    done = shell("worker", "--until-idle")
    assert done.code == 0, done
    assert sorted(shell.ledger) == ["a#1"] * 3 + ["b#1"] * 3 + ["c#1"] * 3
    assert shell.inside("verify").code == 0

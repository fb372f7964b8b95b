"""Connections that break, servers that restart, pages that rot: nothing is lost and nothing is doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest

from onward.clock import SystemClock
from onward.engine.persist import retry_store
from onward.errors import (
    HistoryCorrupt,
    RunUnreadable,
    StoreError,
    StoreFull,
    StoreIO,
    StoreReadOnly,
    StoreUnavailable,
)
from onward.model.events import PauseRequested, RunClaimed, RunPaused
from onward.model.run import FOLD_VERSION
from onward.store.codec import check_chain
from onward.store.port.log import ORIGIN, TakeFilter
from onward.store.port.runs import RunQuery
from onward.store.postgres.adapter import PostgresStore
from onward.store.postgres.calls import CONTENT_MISSING
from onward.store.postgres.connection import Address, ConnectionLost, ServerError, connect
from onward.store.postgres.pool import Wire
from onward.store.postgres.statements import BEGIN, ROLLBACK, call, texts
from onward.testing.postgres import PostgresServer
from tests.conformance.drafts import created, creation, everything_of, held, log_of, step, stepped
from tests.store.proxy import Loss, Proxy

pytestmark = [pytest.mark.postgres, pytest.mark.anyio]
Act = Callable[[PostgresStore], Awaitable[Any]]


@pytest.fixture
def store(proxied_store: PostgresStore) -> PostgresStore:
    return proxied_store


@pytest.fixture
async def witness(postgres_ready_url: str) -> AsyncIterator[PostgresStore]:
    """A store with a connection that nobody breaks."""
    store = await PostgresStore.open(postgres_ready_url)
    yield store
    await store.close()


async def append_in_passing(store: PostgresStore) -> Callable[[], Awaitable[object]]:
    run = await held(store)
    write, _ = run.then(*step(run), with_row=False)
    return lambda: store.log.append(write, run.lease)


async def append_with_row_and_blob_and_snapshot(store: PostgresStore) -> Callable[[], Awaitable[object]]:
    run = await held(store)
    write, _ = run.then(
        *step(run, large="x" * 10_000), RunPaused(reason="signal"), snapshot_version=FOLD_VERSION
    )
    return lambda: store.log.append(write, run.lease)


async def create(store: PostgresStore) -> Callable[[], Awaitable[object]]:
    await created(store)
    write, _ = creation("made", owner=store.leases.owner, exclusive_key="chat")
    return lambda: store.log.create(write, "creation")


async def renew(store: PostgresStore) -> Callable[[], Awaitable[object]]:
    run = await held(store)
    await store.leases.renew([run.lease])
    return lambda: store.leases.renew([run.lease])


async def load(store: PostgresStore) -> Callable[[], Awaitable[object]]:
    run = await stepped(store, await held(store))
    await store.log.load(run.id, fold_version=FOLD_VERSION)
    return lambda: store.log.load(run.id, fold_version=FOLD_VERSION)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
@pytest.mark.parametrize(
    "begin", [append_in_passing, append_with_row_and_blob_and_snapshot, create, renew, load]
)
async def test_what_was_asked_over_a_broken_connection_is_done_exactly_once(
    store: PostgresStore,
    witness: PostgresStore,
    proxy: Proxy,
    begin: Callable[[PostgresStore], Awaitable[Callable[[], Awaitable[object]]]],
    loss: Loss,
) -> None:
    """H1."""
    act = await begin(store)
    before = len(await witness.runs.list(RunQuery()))
    proxy.lose(loss)
    await act()
    assert proxy.losses == 1
    runs = await witness.runs.list(RunQuery())
    assert len(runs) == before + (begin is create)
    for listed in runs:
        log = await log_of(witness, listed.row.id)
        assert check_chain(ORIGIN, log).seq == listed.row.head == len(log)


@pytest.mark.parametrize(
    ("loss", "behind"), [(loss, n) for loss in (Loss.REQUEST, Loss.REPLY) for n in (0, 1)]
)
async def test_a_request_over_a_broken_connection_is_decided_for_good_exactly_once(
    store: PostgresStore, witness: PostgresStore, proxy: Proxy, loss: Loss, behind: int
) -> None:
    run = await created(store)
    write, after = run.then(RunClaimed(token=1, worker=store.leases.owner))
    await store.log.load(run.id, fold_version=FOLD_VERSION)
    proxy.lose(loss, behind=behind)
    answer = await store.log.control(
        run.id, since=run.position.seq, append_id="claim", decide=lambda *_: write
    )
    assert proxy.losses == 1
    assert answer.head == after.position
    assert answer.is_repeat == (loss is Loss.REPLY and behind == 1)
    assert list(await log_of(witness, run.id))[run.position.seq :] == list(write.records)
    await stepped(store, after)


async def test_a_whole_group_is_sent_again_and_written_once(
    store: PostgresStore, witness: PostgresStore, proxy: Proxy
) -> None:
    runs = await asyncio.gather(*(held(store) for _ in range(20)))
    writes = [run.then(*step(run), with_row=False)[0] for run in runs]
    proxy.lose(Loss.REPLY)
    await asyncio.gather(*(store.log.append(w, run.lease) for w, run in zip(writes, runs, strict=True)))
    assert proxy.losses == 1
    for write in writes:
        assert tuple(await log_of(witness, write.run_id))[-2:] == write.records


async def test_an_append_that_is_broken_off_leaves_the_store_usable(
    store: PostgresStore, witness: PostgresStore, proxy: Proxy
) -> None:
    run = await stepped(store, await held(store), times=20)  # by now it commits without a turn of the loop
    write, after = run.then(*step(run), with_row=False)
    proxy.lose(Loss.SILENCE)
    appending = asyncio.create_task(store.log.append(write, run.lease))
    await proxy.lost.wait()
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    proxy.lose(None)
    await store.log.append(write, run.lease)
    await stepped(store, after)
    assert check_chain(ORIGIN, await log_of(witness, run.id)).seq == after.position.seq + 2


async def test_a_server_that_falls_silent_is_given_up(proxy: Proxy, witness: PostgresStore) -> None:
    wire = Wire(await connect(Address.parse(proxy.url)), answer_s=0.1)
    await wire.run(call("run_count"))
    proxy.lose(Loss.SILENCE)
    with pytest.raises(ConnectionLost, match="no answer"):
        await wire.run(call("run_count"))
    assert not wire.is_usable
    with pytest.raises(ConnectionLost, match="no answer"):
        await wire.run(call("run_count"))


async def test_a_server_that_stays_away_is_unavailable_to_everybody_who_waits(
    postgres_ready_url: str,
) -> None:
    async with Proxy(postgres_ready_url) as proxy:
        store = await PostgresStore.open(proxy.url, patience_s=0.2)
        runs = await asyncio.gather(*(held(store) for _ in range(20)))
        await proxy.close()
        answers = await asyncio.gather(
            *(store.log.append(run.then(*step(run))[0], run.lease) for run in runs),
            store.log.load(runs[0].id, fold_version=FOLD_VERSION),
            store.leases.renew([runs[0].lease]),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 22
        assert "cannot connect to PostgreSQL database 'onward_" in str(answers[0])
        await proxy.open()
        for run in runs:
            await stepped(store, run)
        await store.close()


@pytest.mark.parametrize("immediate", [True, False])
async def test_a_restart_of_the_server_loses_and_doubles_nothing(
    postgres_server: PostgresServer, witness: PostgresStore, immediate: bool
) -> None:
    """O16."""
    runs = await asyncio.gather(*(held(witness) for _ in range(8)))
    is_over = False

    async def work(run: Any) -> Any:
        while not is_over:
            run = await stepped(witness, run)
        return run

    working = [asyncio.create_task(work(run)) for run in runs]
    for _ in range(2):
        head = 0
        while head < 30:
            head = max((await witness.leases.renew([run.lease for run in runs])).values())
        postgres_server.restart(immediate=immediate)
        await witness.log.load(runs[0].id, fold_version=FOLD_VERSION)
    is_over = True
    for run in await asyncio.gather(*working):
        assert check_chain(ORIGIN, await log_of(witness, run.id)) == run.position


async def test_a_request_that_waits_for_the_row_of_a_terminated_session_goes_on(
    witness: PostgresStore, postgres_ready_url: str
) -> None:
    run = await held(witness)
    address = Address.parse(postgres_ready_url)
    stuck = Wire(await connect(address))
    _, ((_, _, _, _, _, _),) = await stuck.run(BEGIN, call("run_position", id=run.id, now_us=None))
    assert stuck.is_in_transaction
    waiting = asyncio.create_task(stepped(witness, run))
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as other:
        blocked: Any = None
        while not blocked:
            found = await other.execute("SELECT pid FROM pg_locks WHERE NOT granted")
            blocked = await found.fetchone()
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        )
    await waiting
    with pytest.raises(ConnectionLost):
        await stuck.run(ROLLBACK)


LAST_BLOCK = "SELECT pg_relation_filepath('event'), max((ctid::text::point)[0]::int) FROM event"


async def executed(url: str, *statements: str) -> list[Any]:
    """Run SQL beside the store; the rows of the last statement."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = connection.cursor()
        for statement in statements:
            await cursor.execute(statement.encode())
        return await cursor.fetchall() if cursor.description else []


def failing(sqlstate: str, *, at_commit: bool) -> tuple[str, str]:
    """SQL that makes every new event of run `bad` fail."""
    trigger = "CONSTRAINT TRIGGER broken AFTER" if at_commit else "TRIGGER broken BEFORE"
    when = "DEFERRABLE INITIALLY DEFERRED" if at_commit else ""
    return (
        f"CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'a test' USING ERRCODE = '{sqlstate}'; END $$",
        f"CREATE {trigger} INSERT ON event {when} FOR EACH ROW WHEN (NEW.run_id = 'bad') "
        "EXECUTE FUNCTION broken()",
    )


@pytest.mark.parametrize("at_commit", [False, True])
@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("53100", StoreFull),
        ("25006", StoreUnavailable),
        ("57014", StoreUnavailable),
        ("57P01", StoreUnavailable),
        ("55P03", StoreUnavailable),
        ("40P01", StoreUnavailable),
        ("58030", StoreIO),
    ],
)
async def test_a_failure_is_told_by_its_kind_and_nothing_is_written(
    witness: PostgresStore, postgres_ready_url: str, sqlstate: str, kind: type[StoreError], at_commit: bool
) -> None:
    run = await held(witness, "bad")
    before = await everything_of(witness, run.id)
    await executed(postgres_ready_url, *failing(sqlstate, at_commit=at_commit))
    with pytest.raises(kind) as raised:
        await stepped(witness, run)
    assert type(raised.value) is kind
    with pytest.raises(kind):
        await witness.log.control(
            run.id, since=0, append_id="x", decide=lambda *_: run.then(PauseRequested(after="now", by="x"))[0]
        )
    assert await everything_of(witness, run.id) == before
    await executed(postgres_ready_url, "DROP FUNCTION broken CASCADE")
    await stepped(witness, run)


@pytest.mark.parametrize("at_commit", [False, True])
async def test_one_write_that_the_database_rejects_does_not_take_its_group_with_it(
    witness: PostgresStore, postgres_ready_url: str, at_commit: bool
) -> None:
    """H5."""
    runs = [await held(witness, name) for name in ("one", "bad", "two", "three")]
    await executed(postgres_ready_url, *failing("23514", at_commit=at_commit))
    answers = await asyncio.gather(*(stepped(witness, run) for run in runs), return_exceptions=True)
    assert isinstance(answers[1], StoreIO)
    assert [len(await log_of(witness, run.id)) for run in runs] == [4, 2, 4, 4]


async def test_a_database_that_was_read_only_from_the_start_says_so_at_once_and_can_be_read(
    postgres_ready_url: str,
) -> None:
    """Then the address is wrong, and waiting does not help."""
    store = await PostgresStore.open(postgres_ready_url)
    run = await held(store)
    await store.close()
    (name,) = (await executed(postgres_ready_url, "SELECT current_database()"))[0]
    await executed(postgres_ready_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store = await PostgresStore.open(postgres_ready_url, patience_s=3600)
    assert len(await log_of(store, run.id)) == 2
    with pytest.raises(StoreReadOnly, match="is read-only, because it is a standby or set to read-only"):
        await created(store)
    await executed(
        postgres_ready_url, "SET default_transaction_read_only = off", f"ALTER DATABASE {name} RESET ALL"
    )
    await created(store)
    await store.close()


@pytest.fixture
async def read_only(postgres_server: PostgresServer) -> AsyncIterator[Callable[[bool], Awaitable[None]]]:
    """Sets the server to read-only, also for the sessions there are, or back."""

    async def switch(is_on: bool) -> None:
        url, wanted = postgres_server.url(), "on" if is_on else "off"
        await executed(
            url, f"ALTER SYSTEM SET default_transaction_read_only = {wanted}", "SELECT pg_reload_conf()"
        )
        while await executed(url, "SHOW default_transaction_read_only") != [(wanted,)]:
            pass  # the server tells its sessions first, and then serves new ones

    yield switch
    await switch(False)


async def test_a_server_that_stays_read_only_is_told_in_one_sentence_and_can_be_read(
    postgres_ready_url: str, read_only: Callable[[bool], Awaitable[None]]
) -> None:
    store = await PostgresStore.open(postgres_ready_url, patience_s=1)
    run = await stepped(store, await held(store))
    await read_only(True)
    write, after = run.then(*step(run))
    with pytest.raises(
        StoreUnavailable, match=r"because it is a standby or set to read-only; .*\."
    ) as raised:
        await store.log.append(write, run.lease)
    assert "\n" not in str(raised.value)
    assert len(await log_of(store, run.id)) == 4
    await read_only(False)
    # A busy machine may need longer than this store's patience for a connection.
    await retry_store(SystemClock(), lambda: store.log.append(write, run.lease))
    await stepped(store, after)
    await store.close()


async def test_one_connection_that_is_refused_as_read_only_makes_all_of_them_reconnect(
    proxy: Proxy, store: PostgresStore, read_only: Callable[[bool], Awaitable[None]]
) -> None:
    """A demoted server keeps its connections, and those who only read would never learn of the new one."""
    run = await held(store)
    await store.leases.renew([run.lease])
    due = asyncio.Event()
    unwatch = await store.watch(due.set)
    await read_only(True)
    due.clear()
    before = proxy.connections
    renewing = asyncio.create_task(store.leases.renew([run.lease]))
    await due.wait()  # the listener is back, on another connection
    await read_only(False)
    assert await renewing == {run.id: run.position.seq}
    between = proxy.connections
    assert between >= before + 2
    await store.log.load(run.id, fold_version=FOLD_VERSION)
    await stepped(store, run)
    assert proxy.connections == between + 2
    await unwatch()


async def test_of_several_servers_that_are_all_read_only_none_is_used(postgres_ready_url: str) -> None:
    (name,) = (await executed(postgres_ready_url, "SELECT current_database()"))[0]
    await executed(postgres_ready_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    place = postgres_ready_url.partition("@")[2].partition("/")[0]
    with pytest.raises(
        StoreUnavailable, match="session is read-only; start or promote the primary, or add it to the address"
    ):
        await PostgresStore.open(postgres_ready_url.replace(place, f"{place},{place}"))


@pytest.mark.parametrize("length", [60, 200])  # read with the run's row, or after it
async def test_damage_is_named_and_the_other_runs_stay_usable(
    witness: PostgresStore, postgres_server: PostgresServer, postgres_ready_url: str, length: int
) -> None:
    well = await stepped(witness, await held(witness), times=2)
    bad = await held(witness)
    while bad.position.seq < length:
        bad = await stepped(witness, bad, text="x" * 200)
    await executed(postgres_ready_url, "VACUUM (FREEZE) event", "CHECKPOINT")
    ((path, block),) = await executed(postgres_ready_url, LAST_BLOCK)
    ((first,),) = await executed(
        postgres_ready_url, f"SELECT min(seq) FROM event WHERE (ctid::text::point)[0]::int = {block}"
    )
    with (postgres_server.directory / "data" / path).open("r+b") as file:
        file.seek(block * 8192)
        file.write(b"\xff" * 24)
    postgres_server.restart()
    with pytest.raises(HistoryCorrupt) as raised:
        await witness.log.load(bad.id, fold_version=FOLD_VERSION)
    assert (raised.value.run_id, raised.value.seq) == (bad.id, first)
    assert len(await log_of(witness, well.id)) == well.position.seq
    assert await witness.log.read(bad.id, after=0, limit=first - 1)
    await executed(postgres_ready_url, f"UPDATE run SET due_at_us = 0 WHERE id = '{bad.id}'")
    with pytest.raises(RunUnreadable, match=f"event {first} ") as unreadable:
        await witness.log.take(TakeFilter(), fold_version=FOLD_VERSION, decide=lambda *_: None)
    assert unreadable.value.run_id == bad.id


async def test_a_failed_statement_undoes_everything_that_was_sent_with_it(
    witness: PostgresStore, postgres_ready_url: str
) -> None:
    wire = Wire(await connect(Address.parse(postgres_ready_url)))
    blob = call("blob_put", hash="0" * 64, encoding="plain", content=b"", touched_at_us=0)
    wrong = call("blob_put", hash="short", encoding="plain", content=b"", touched_at_us=0)
    with pytest.raises(ServerError) as raised:
        await wire.run(blob, wrong, call("run_count"))
    assert (raised.value.sqlstate, raised.value.constraint) == ("23514", "blob_hash_check")
    assert await wire.run(call("blob_get", hash="0" * 64)) == [[]]
    assert await wire.run(blob, call("run_count")) == [[], []]
    wire.close()


async def test_a_statement_that_refuses_says_why_to_whoever_reads_the_log_of_the_server(
    witness: PostgresStore, postgres_ready_url: str
) -> None:
    wire = Wire(await connect(Address.parse(postgres_ready_url)))
    blob = call("blob_put", hash="0" * 64, encoding="plain", content=b"", touched_at_us=0)
    with pytest.raises(ServerError, match="content that was stored before is deleted") as raised:
        await wire.run(blob, call("blob_hold", hashes=texts(["1" * 64])))
    assert raised.value.sqlstate == CONTENT_MISSING
    assert await wire.run(call("blob_get", hash="0" * 64)) == [[]]
    wire.close()

"""What only PostgreSQL does: leases by its clock and by what is seen of a process, plans, rows and text."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, LiteralString

import psycopg
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from onward.errors import InvalidInput, Refused, RunNotFound, StaleHistory
from onward.host import HostIdentity, host_identity
from onward.model.events import PauseRequested, RunClaimed, RunFailed
from onward.model.run import FOLD_VERSION
from onward.store.owner import owner_label, owner_proof
from onward.store.port.leases import Holder
from onward.store.port.log import Controlled, Decide, Held, StoredEvent, TakeFilter, Write
from onward.store.port.store import Store
from onward.store.postgres.adapter import PostgresStore
from onward.store.postgres.connection import Address, connect
from onward.store.postgres.statements import QUERIES, Statement, advance_alone
from tests.chance import examples
from tests.conformance.drafts import (
    Draft,
    claimed,
    created,
    creation,
    fork,
    held,
    log_of,
    requested,
    step,
    stepped,
)

pytestmark = [pytest.mark.postgres, pytest.mark.anyio]
LEASE_S = 10.0
LEASE_US = 10_000_000

HOLD = """
import asyncio, sys
from onward.store.postgres.adapter import PostgresStore
from tests.conformance.drafts import held
async def main():
    store = await PostgresStore.open(sys.argv[1], lease_s=3600)
    print((await held(store, "theirs")).run.worker, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


class Time:
    """The time by which leases are judged."""

    def __init__(self) -> None:
        self.now_us = 1_000_000_000


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def store(postgres_ready_url: str, time: Time) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(postgres_ready_url, lease_s=LEASE_S, now_us=lambda: time.now_us)
    yield store
    await store.close()


@pytest.fixture
async def other(postgres_ready_url: str, time: Time) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(postgres_ready_url, lease_s=LEASE_S, now_us=lambda: time.now_us)
    yield store
    await store.close()


async def holder_of(store: Store, run_id: str) -> Holder | None:
    loaded = await store.log.load(run_id, fold_version=FOLD_VERSION)
    assert loaded is not None
    return loaded.holder


async def is_alive(store: Store, run_id: str) -> bool:
    holder = await holder_of(store, run_id)
    assert holder is not None
    ((listed,), found) = await store.runs.find(run_id), list[Held]()
    assert listed.holder == holder
    await store.log.control(run_id, since=0, append_id="look", decide=lambda held, _: found.append(held))
    assert found[0].holder == holder
    return holder.is_alive


# -- who is alive --------------------------------------------------------------------------------------


async def test_a_lease_is_good_for_its_time_and_not_a_microsecond_longer(
    store: PostgresStore, other: PostgresStore, time: Time
) -> None:
    run = await held(store)
    for process in (store, other):
        time.now_us = 1_000_000_000 + LEASE_US - 1
        assert await is_alive(process, run.id)
        time.now_us += 1
        assert not await is_alive(process, run.id)


async def test_a_renewal_and_a_claim_each_begin_the_time_anew_and_work_does_not(
    store: PostgresStore, other: PostgresStore, time: Time
) -> None:
    run = await held(store)
    time.now_us += 7_000_000
    assert await store.leases.renew([run.lease]) == {run.id: run.position.seq}
    time.now_us += 7_000_000
    assert await is_alive(other, run.id)
    run = await stepped(store, run)
    write, run = run.then(*step(run))
    await store.log.append(write, run.lease)
    time.now_us += 3_000_000
    assert not await is_alive(other, run.id)
    run = await claimed(other, run)
    time.now_us += LEASE_US - 1
    assert await is_alive(store, run.id)


async def test_of_many_that_claim_an_expired_run_exactly_one_wins(
    store: PostgresStore, other: PostgresStore, time: Time
) -> None:
    """S2-14, S2-15: a run is stalled when its lease has expired, and the claim is one conditional write."""
    run = await held(store)
    time.now_us += LEASE_US

    def decide(held: Held, tail: Sequence[StoredEvent]) -> Write:
        if held.holder is not None and held.holder.is_alive:
            raise Refused("occupied", "somebody was faster.")
        return run.then(RunClaimed(token=2, worker=held.asker, lost=True))[0]

    answers = await asyncio.gather(
        *(
            process.log.control(run.id, since=run.position.seq, append_id=f"claim-{number}", decide=decide)
            for number, process in enumerate((store, other) * 10)
        ),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers].count(Refused) == 19
    assert await is_alive(store, run.id)


async def test_a_process_that_is_connected_during_a_migration_prepares_its_statements_again(
    postgres_url: str,
) -> None:
    """A statement that returns a column whose type has changed fails on its connection for ever."""
    store = await PostgresStore.open(postgres_url)
    run = await held(store)
    for _ in range(2):
        assert await store.runs.find(run.id)
        assert await store.log.load(run.id, fold_version=FOLD_VERSION)
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE DOMAIN word AS TEXT CHECK (VALUE <> '')")
        db.execute("ALTER TABLE run ALTER COLUMN pipeline TYPE word")
    assert (await store.runs.find(run.id))[0].row.pipeline
    assert await store.log.load(run.id, fold_version=FOLD_VERSION)
    await stepped(store, run)
    await store.close()


async def test_the_servers_clock_ends_a_lease(postgres_ready_url: str) -> None:
    store = await PostgresStore.open(postgres_ready_url, lease_s=0.2)
    run = await held(store)
    while await holder_of(store, run.id) == Holder(store.leases.owner, 1, True):
        pass
    await store.leases.renew([run.lease._replace(token=2)])
    assert await holder_of(store, run.id) == Holder(store.leases.owner, 1, False)
    await store.close()
    store = await PostgresStore.open(postgres_ready_url, lease_s=3600)
    await store.leases.renew([run.lease])
    assert await is_alive(store, run.id)
    await store.close()


async def test_a_holder_hears_at_once_of_a_request_to_its_run(
    store: PostgresStore, postgres_ready_url: str
) -> None:
    """Design §16: by a notice, and not at the next heartbeat; requests to runs of others are not heard."""
    mine = await held(store)
    news = store.leases.news
    await news.wait()  # it listens by now
    other = await PostgresStore.open(postgres_ready_url)
    news.clear()
    await requested(other, await held(other), PauseRequested(after="step", by="pat"))
    assert not news.is_set()
    await requested(other, mine, PauseRequested(after="step", by="pat"))
    await news.wait()
    await other.close()


async def test_a_store_says_how_long_and_how_often(store: PostgresStore) -> None:
    assert store.leases.lease_s == LEASE_S
    assert store.leases.heartbeat_s == LEASE_S / 3
    assert owner_label(store.leases.owner).startswith(f"process {os.getpid()} on ")


@pytest.fixture
def process(postgres_ready_url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the run `theirs`, and says under which name."""
    command = [sys.executable, "-c", HOLD, postgres_ready_url]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        yield process
        process.kill()


def wait_until(process: subprocess.Popen[str], state: int) -> None:
    """Wait for a child to be stopped or ended, and leave it as it is."""
    os.waitid(os.P_PID, process.pid, state | os.WNOWAIT)


@pytest.mark.slow
async def test_a_process_that_was_killed_on_this_machine_is_dead_at_once(
    process: subprocess.Popen[str], postgres_ready_url: str
) -> None:
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    store = await PostgresStore.open(postgres_ready_url)
    assert await holder_of(store, "theirs") == Holder(name, 1, True)
    process.send_signal(signal.SIGSTOP)
    wait_until(process, os.WSTOPPED)
    assert await is_alive(store, "theirs"), "a stopped process may go on"
    process.kill()
    wait_until(process, os.WEXITED)
    assert await holder_of(store, "theirs") == Holder(name, 1, False)
    process.wait()
    assert await holder_of(store, "theirs") == Holder(name, 1, False)
    await store.close()


def named(identity: HostIdentity, nonce: str = "0") -> str:
    return f"{identity.pid}@{identity.host}/{nonce}/{identity.text()}"


async def test_only_a_process_of_this_machine_and_boot_is_seen_to_be_gone(
    store: PostgresStore, time: Time
) -> None:
    here = host_identity()
    gone = replace(here, started=here.started - 1)
    strangers = [
        replace(gone, host="elsewhere"),
        replace(gone, boot_id="before"),
        replace(gone, pid_space="9"),
    ]
    owners = [named(gone), *map(named, strangers), named(here, "another"), "1@host/what/ever", "nonsense"]
    runs = [await created(store, owner=owner) for owner in owners]
    assert [await is_alive(store, run.id) for run in runs] == [False, True, True, True, True, True, True]
    time.now_us += LEASE_US
    assert not any([await is_alive(store, run.id) for run in runs])


async def test_the_name_of_an_owner_proves_which_process_it_is(store: PostgresStore) -> None:
    nonce, _, identity = owner_proof(store.leases.owner).partition("/")
    assert HostIdentity.parse(identity) == host_identity()
    assert nonce


async def test_closing_ends_the_leases_that_are_left_and_no_others(
    postgres_ready_url: str, store: PostgresStore, time: Time
) -> None:
    closing = await PostgresStore.open(postgres_ready_url, now_us=lambda: time.now_us)
    mine, theirs, lost = await held(store), await held(closing), await held(closing)
    await claimed(store, lost)
    await closing.close()
    assert [await is_alive(store, run.id) for run in (mine, theirs, lost)] == [True, False, True]


# -- statements ----------------------------------------------------------------------------------------


RUNS = """
INSERT INTO run SELECT 'run-' || n, 'd' || n, 'p', 'h', NULL, 'running', '', '', 1, NULL, 0, 1, 'owner', 0,
    NULL, NULL, 'requeue', NULL, NULL, NULL, n, n, NULL, 1, decode(repeat('00', 32), 'hex')
FROM generate_series(1, %s) AS n
"""


async def plan_of(url: str, query: str | Statement) -> list[str]:
    """The index by which a query's plan finds the rows of each table; `all of it` when it reads every row."""
    statement = QUERIES[query] if isinstance(query, str) else query
    nulls = ", ".join(["NULL"] * len(statement.parameters))
    async with await connect(Address.parse(url)) as connection:
        await connection.execute(b"PREPARE planned AS " + statement.sql)
        cursor = await connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE planned ({nulls})".encode())
        (((explained,),),) = [await cursor.fetchall()]
    return list(_indexes(explained[0]["Plan"]))


def _indexes(node: dict[str, Any]) -> Iterator[str]:
    if "Index Name" in node:
        yield node["Index Name"] if "Index Cond" in node else "all of it"
    elif node["Node Type"] == "Seq Scan":
        yield "all of it"
    for child in node.get("Plans", ()):
        yield from _indexes(child)


@pytest.mark.parametrize("rows", [0, 1, 20, 5_000])
async def test_every_plan_finds_runs_by_their_ids_even_one_made_while_there_were_none(
    store: PostgresStore, postgres_ready_url: str, rows: int
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as connection:
        await connection.execute(RUNS, (rows,))
        await connection.execute("ANALYZE")
    for name in ("run_advance", "run_update"):
        assert await plan_of(postgres_ready_url, name) == ["run_pkey", "run_pkey"]
    for alone in (QUERIES["run_update_alone"], advance_alone(1), advance_alone(2)):
        assert await plan_of(postgres_ready_url, alone) == ["run_pkey"]
    assert await plan_of(postgres_ready_url, "lease_renew") == ["run_pkey", "run_pkey"]
    for name in ("run_position", "run_get", "run_fork"):
        assert await plan_of(postgres_ready_url, name) == ["run_pkey"]
    for name in ("event_read", "event_hash", "snapshot_put"):
        assert await plan_of(postgres_ready_url, name) == ["event_pkey"]
    assert await plan_of(postgres_ready_url, "event_tail") == ["snapshot_pkey", "event_pkey"]
    if rows > 1_000:
        assert await plan_of(postgres_ready_url, "run_by_prefix") == ["run_pkey", "run_by_display_id"]
        assert await plan_of(postgres_ready_url, "run_by_display_id") == ["run_by_display_id"]


async def test_the_row_of_a_run_that_moves_stays_in_its_page(postgres_ready_url: str) -> None:
    """A row that moves to another page is entered into every index again."""
    store = await PostgresStore.open(postgres_ready_url)
    runs: Sequence[Draft] = await asyncio.gather(*(held(store) for _ in range(200)))
    for _ in range(3):
        runs = await asyncio.gather(*(stepped(store, run) for run in runs))
    await store.close()  # a session that ends reports what it did
    moves = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'run'"
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as connection:
        all_moves = in_place = 0
        while all_moves < 600:
            ((all_moves, in_place),) = await (await connection.execute(moves.encode())).fetchall()
            await asyncio.sleep(0.01)
    assert in_place >= 0.9 * all_moves


async def transactions_of(url: str, runs: Sequence[Draft]) -> int:
    """In how many transactions these runs were last changed."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        cursor = await connection.execute(
            "SELECT count(DISTINCT xmin::text) FROM run WHERE id = ANY (%s)", ([run.id for run in runs],)
        )
        ((number,),) = await cursor.fetchall()
        return int(number)


async def test_a_group_of_all_kinds_of_writes_is_one_transaction(
    store: PostgresStore, postgres_ready_url: str
) -> None:
    runs = await asyncio.gather(*(held(store) for _ in range(20)))
    assert await transactions_of(postgres_ready_url, runs) == 1
    writes = [
        run.then(*step(run, text="x" * 5_000), with_row=number % 2 > 0, snapshot_version=FOLD_VERSION)[0]
        for number, run in enumerate(runs)
    ]
    made, new = creation()
    await asyncio.gather(
        *(store.log.append(write, run.lease) for write, run in zip(writes, runs, strict=True)),
        store.log.create(made, "creation"),
    )
    assert await transactions_of(postgres_ready_url, [*runs, new]) == 1


async def is_free(url: str, run_id: str) -> bool:
    """Whether nobody holds the lock of this run's row."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        cursor = await connection.execute("SELECT 1 FROM run WHERE id = %s FOR UPDATE SKIP LOCKED", (run_id,))
        return await cursor.fetchone() is not None


async def wait_blocked(url: str) -> None:
    """Return when somebody waits for a lock."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while not await (await connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted")).fetchone():
            pass


@pytest.mark.parametrize("full", ["b", "abc", "c", "", "renewal"])
async def test_the_runs_of_a_group_are_locked_in_the_order_of_their_ids(
    store: PostgresStore, postgres_ready_url: str, full: str
) -> None:
    """H5."""
    runs = [await held(store, run_id) for run_id in "cab"]
    writes = [run.then(*step(run), with_row=run.id in full)[0] for run in runs]
    async with await psycopg.AsyncConnection.connect(postgres_ready_url) as rival:
        await rival.execute("SELECT 1 FROM run WHERE id = 'b' FOR UPDATE")
        waiting: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(store.log.append(write, run.lease))
            for write, run in zip(writes, runs, strict=True)
            if full != "renewal"
        ] or [asyncio.ensure_future(store.leases.renew([run.lease for run in runs]))]
        await wait_blocked(postgres_ready_url)
        assert [await is_free(postgres_ready_url, run_id) for run_id in "abc"] == [False, False, True]
    await asyncio.gather(*waiting)


async def test_a_run_that_somebody_is_about_to_take_is_passed_over_and_not_waited_for(
    store: PostgresStore, postgres_ready_url: str, time: Time
) -> None:
    for run_id in "ab":
        await created(store, run_id, at_us=time.now_us)
    seen: list[str] = []
    wanted = TakeFilter()
    async with await psycopg.AsyncConnection.connect(postgres_ready_url) as rival:
        await rival.execute("SELECT 1 FROM run WHERE id = 'a' FOR UPDATE")
        async with asyncio.timeout(30):
            await store.log.take(
                wanted, fold_version=FOLD_VERSION, decide=lambda _, loaded: seen.append(loaded.row.id)
            )
    assert seen == ["b"]


NEW_RUN = """INSERT INTO run
SELECT (jsonb_populate_record(run, jsonb_build_object('id', %s::text))).* FROM run WHERE id = 'there'"""
NEW_BLOB = "INSERT INTO blob (hash, encoding, content, touched_at_us) VALUES (%s, 'plain', '', 0)"


async def is_taken(url: str, insert: LiteralString, name: str) -> bool:
    """Whether somebody has inserted a row of this name and not committed yet."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("SET lock_timeout = '50ms'")
        try:
            await connection.execute(insert, (name,))
        except psycopg.errors.LockNotAvailable:
            return True
        finally:
            await connection.rollback()
        return False


@pytest.mark.parametrize("kind", ["runs", "blobs"])
async def test_what_a_group_makes_is_made_in_the_order_of_its_names(
    store: PostgresStore, postgres_ready_url: str, kind: str
) -> None:
    """Two groups that make the same things would else wait for each other. H5."""
    await created(store, "there")
    writes = [creation(run_id, context={"text": run_id * 5_000})[0] for run_id in "cab"]
    blobs = sorted(name for write in writes for name in write.blobs)
    assert len(blobs) == 3
    insert, names = (NEW_RUN, list("abc")) if kind == "runs" else (NEW_BLOB, blobs)
    if kind == "blobs":
        writes.sort(key=lambda write: list(write.blobs), reverse=True)
    async with await psycopg.AsyncConnection.connect(postgres_ready_url) as rival:
        await rival.execute(insert, (names[1],))
        making = [asyncio.ensure_future(store.log.create(write, write.run_id)) for write in writes]
        await wait_blocked(postgres_ready_url)
        assert [await is_taken(postgres_ready_url, insert, name) for name in names] == [True, True, False]
        await rival.rollback()
    await asyncio.gather(*making)


async def test_whatever_comes_of_a_request_the_run_is_let_go_of(
    store: PostgresStore, postgres_ready_url: str
) -> None:
    old, other = await held(store, exclusive_key="chat"), await created(store, exclusive_key="chat")
    run = await stepped(store, old)
    late, claim = (
        old.then(*step(old, late=True))[0],
        other.then(RunClaimed(token=1, worker=store.leases.owner))[0],
    )

    def refuse(held: Held, tail: Sequence[StoredEvent]) -> Write:
        raise Refused("invalid_state", "not now.")

    requests: list[tuple[str, str, Decide]] = [
        (run.id, "look", lambda *_: None),
        (run.id, "creation", refuse),
        (run.id, "refused", refuse),
        (run.id, "late", lambda *_: late),
        (other.id, "occupied", lambda *_: claim),
        ("nowhere", "nothing", refuse),
    ]
    answers = await asyncio.gather(
        *(
            store.log.control(run_id, since=0, append_id=name, decide=decide)
            for run_id, name, decide in requests
        ),
        return_exceptions=True,
    )
    expected = [Controlled, Controlled, Refused, StaleHistory, Refused, RunNotFound]
    assert [type(answer) for answer in answers] == expected
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as connection:
        cursor = await connection.execute(
            "SELECT state FROM pg_stat_activity WHERE datname = current_database()"
        )
        assert {state for (state,) in await cursor.fetchall()} == {"idle", "active"}


async def test_events_cannot_be_changed_or_removed_while_their_run_exists(
    store: PostgresStore, postgres_ready_url: str
) -> None:
    run = await stepped(store, await held(store))
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as connection:
        for statement in (
            "UPDATE event SET v = 1",
            "DELETE FROM event",
            "TRUNCATE event",
            "TRUNCATE event, run, gate, stuck, backfill, outbox, reservation",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="events are never"):
                await connection.execute(statement.encode())
        assert len(await log_of(store, run.id)) == 4
        await connection.execute("DELETE FROM run")
        await connection.execute("DELETE FROM event")


async def test_the_run_that_a_fork_stands_on_cannot_be_removed(
    store: PostgresStore, postgres_ready_url: str
) -> None:
    run = await held(store)
    await store.log.create(fork(run)[0], "creation")
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            await connection.execute("DELETE FROM run WHERE id = %s", (run.id,))


# -- text ----------------------------------------------------------------------------------------------

TEXT = st.text(st.sampled_from("\0a0 1\U0010ffff\U0010fffe\\é") | st.characters(codec="utf-8"), max_size=20)
SHARED = examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(text=TEXT)
@example(text="\0")
@example(text="\U0010ffff0\U0010ffff1\U0010ffff")
@SHARED
async def test_every_text_in_a_row_comes_back_as_it_was(store: PostgresStore, text: str) -> None:
    run = await held(store, pipeline=text, path=text, start_node=text)
    write, after = run.then(RunFailed(reason="step_failed", detail=text))
    await store.log.append(write, run.lease)
    (listed,) = await store.runs.find(run.id)
    assert (listed.row.pipeline, listed.row.path, listed.row.detail) == (text, text, text)
    assert listed.row.next_node == after.run.next_node


async def test_no_body_holds_a_nul(store: PostgresStore) -> None:
    run = await stepped(store, await held(store, context={"\0": {"a\0b": ["\0"]}}), text="\0")
    assert not any("\0" in record.body for record in await log_of(store, run.id))


@pytest.mark.parametrize("wanted", ["\0", "a\0", "%\0", "\U0010ffff"])
async def test_what_cannot_be_in_a_name_finds_nothing(store: PostgresStore, wanted: str) -> None:
    await created(store)
    assert await store.runs.find(wanted) == []
    assert await store.log.load(wanted, fold_version=FOLD_VERSION) is None
    assert await log_of(store, wanted) == []
    assert await store.blobs.find(wanted) is None


async def test_half_a_character_is_refused_in_words(store: PostgresStore) -> None:
    with pytest.raises(InvalidInput, match="a lone surrogate"):
        await store.runs.find("\ud800")
    run, (write, _) = await held(store), creation()
    half = structs.replace(write, row=structs.replace(write.row, detail="\ud800"))  # type: ignore[type-var]
    answers = await asyncio.gather(
        stepped(store, run), store.log.create(half, "creation"), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [Draft, InvalidInput]


async def test_a_doctor_finds_what_is_wrong_with_this_server(store: PostgresStore) -> None:
    findings = {subject: is_well for subject, is_well, _ in await store.check()}
    assert findings == {
        "server": True,
        "schema": True,
        "durability": False,  # the tests' server does not wait for its disk
        "pooler": True,
        "isolation": True,
        "primary": True,
        "encoding": True,
        "clock": True,
        "rights": True,
    }


async def test_a_request_whose_log_starts_in_a_parent_is_shown_all_of_it(store: PostgresStore) -> None:
    parent = await stepped(store, await held(store))
    write, child = fork(parent)
    await store.log.create(write, "creation")
    shown: list[int] = []
    for since in range(child.position.seq + 1):
        shown.clear()
        await store.log.control(
            child.id,
            since=since,
            append_id="look",
            decide=lambda _, tail: shown.extend(record.seq for record in tail),
        )
        assert shown == list(range(since + 1, child.position.seq + 1))
    await requested(store, child, RunClaimed(token=child.run.token + 1, worker=store.leases.owner))

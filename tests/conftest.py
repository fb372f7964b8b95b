"""What every test may ask for: an event loop, stores of every kind, processes at them, and chance."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from zlib import crc32

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql

from onward.receipts.folder import HANDOFFS, RECEIPTS, is_finished_file
from onward.receipts.receipt import read_handoff, read_receipt
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.chance import SAME, slowness
from tests.world import World, connect_to_memory, in_memory

if TYPE_CHECKING:
    from tests.conformance.processes import Connect

# Whoever started the tests may have chosen to ignore it (`nohup`), which every child would inherit.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.load_profile(SAME)  # `--hypothesis-profile` is read later, so it wins

DATABASES = ("sqlite", "postgres")
ONE_IN = 3
"""PostgreSQL takes three times as long: of the tests that run on one database, every third runs there."""
FEW_BYTES = 1_000_000
"""A database of this size is emptied faster by deleting rows than by making new files for its tables."""
ON_ALL_STORES = ("store", "worker")
"""Folders whose tests are about the stores themselves, or about processes at them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-stores",
        action="store_true",
        help="run the tests above the stores on SQLite and on PostgreSQL, not on one of the two",
    )
    parser.addoption(
        "--browser",
        action="store_true",
        help="run every test of the page, not only the walks that are marked `smoke`",
    )
    parser.addoption(
        "--slow-stores",
        metavar="SEED",
        help="delay calls of tests with a `world` to their database, to find those that depend on time",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give all tests the fixtures `store` and `other`; late, because their package follows the profile."""
    config.pluginmanager.import_plugin("tests.conformance.processes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run what takes long first, so that no process waits for another in the end.

    What stands above the stores runs on one database: their own suite shows that they do the same.
    """
    items.sort(key=_how_short)
    if not config.getoption("--browser") and not any("::" in word for word in config.args):
        _leave_out(config, items, _is_of_page)
    if config.getoption("--all-stores") or any("[" in word for word in config.args):
        return
    _leave_out(config, items, _is_left_out)


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], bool]
) -> None:
    left_out = {item for item in items if is_left_out(item)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _is_of_page(item: pytest.Item) -> bool:
    """Whether it drives a browser, and is not one of the walks that every run makes."""
    return "browser" in getattr(item, "fixturenames", ()) and item.get_closest_marker("smoke") is None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile, and never among ten thousand tests: they stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _how_short(item: pytest.Item) -> int:
    return 0 if item.get_closest_marker("crash") else 1 if item.get_closest_marker("slow") else 2


def _is_left_out(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    params = {} if callspec is None else callspec.params
    kind = params.get("store_kind", params.get("any_shell"))
    if kind not in DATABASES or item.path.relative_to(Path(__file__).parent).parts[0] in ON_ALL_STORES:
        return False
    # By the name of the test, so that it is always the same one.
    name = item.nodeid.partition("[")[0]
    return bool(kind != DATABASES[crc32(name.encode()) % ONE_IN == 0])


COUNTED = "counted"
Counted = Callable[[str], None]


@pytest.fixture
def count(record_property: Callable[[str, object], None]) -> Counted:
    """Says what a test has counted: it is printed at the end, in whatever process the test ran."""
    return partial(record_property, COUNTED)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                for name, text in report.user_properties:
                    if name == COUNTED:
                        terminalreporter.write_line(str(text))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Onward is written for asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests. A machine where it cannot start fails them; nothing is skipped."""
    with PostgresServer(fsync=False) as server:
        _check_password_faster(server)
        yield server


def _check_password_faster(server: PostgresServer) -> None:
    """Store the password with one round of hashing: to check 4096 is most of what a new connection costs."""
    password = urlsplit(server.url()).password
    assert password
    with psycopg.connect(server.url(), autocommit=True) as connection:
        if connection.info.server_version < 160_000:
            return  # it cannot be told
        connection.execute("SET scram_iterations = 1")
        connection.execute(sql.SQL("ALTER ROLE postgres PASSWORD {}").format(password))


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A new, empty database of this test's own. Mark the test `postgres`."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The name of a database that has the schema and nothing else."""
    url = postgres_server.create_database()
    with ThreadPoolExecutor(1) as elsewhere:  # an async fixture may be the first to ask
        elsewhere.submit(asyncio.run, _migrate(url)).result()
    return url.rpartition("/")[2]


async def _migrate(url: str) -> None:
    await (await open_store(url)).close()


@pytest.fixture
def postgres_ready_url(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    """A new database of this test's own that has the schema: a copy is made in half the time."""
    url = postgres_server.create_database(template=postgres_template)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def postgres_shared_url(postgres_server: PostgresServer) -> str:
    """A database that tests use one after the other: making one takes longer than most tests do."""
    return postgres_server.create_database()


@pytest.fixture
def postgres_emptied_url(postgres_shared_url: str) -> Iterator[str]:
    """A database with nothing in it but, perhaps, the schema."""
    yield postgres_shared_url
    with psycopg.connect(postgres_shared_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("SET session_replication_role = replica")  # the schema forbids what comes now
        tables = connection.execute(
            "SELECT tablename, pg_relation_size(tablename::regclass) FROM pg_tables "
            "WHERE schemaname = 'public' AND tablename NOT IN ('migration', 'identity')"
        ).fetchall()
        names = [sql.Identifier(name) for name, _ in tables]
        if sum(size for _, size in tables) > FEW_BYTES:
            connection.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(names)))
        else:
            connection.execute(sql.SQL(";").join(sql.SQL("DELETE FROM {}").format(name) for name in names))
        if "scope" in (name for name, _ in tables):  # what a new database has
            connection.execute("INSERT INTO scope (id, kind, max_tokens) VALUES ('chat', 'chat', 500000)")
            connection.execute("INSERT INTO scope (id, kind, max_calls) VALUES ('run', 'run', 300)")


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store in turn: whoever asks for it, or for what is built on it, runs on all of them."""
    kind: str = request.param
    return kind


@pytest.fixture
def connect(store_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Opens a store; each call is another process at the same new, empty database."""
    if store_kind == "memory":
        return connect_to_memory()
    db = (
        str(tmp_path / "onward.db")
        if store_kind == "sqlite"
        else request.getfixturevalue("postgres_emptied_url")
    )
    return lambda: open_store(db)


@pytest.fixture
async def world(connect: Connect, store_kind: str, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A database, and whatever processes the test starts at it."""
    world = World(connect, store_kind)
    seed = request.config.getoption("--slow-stores")
    if seed is not None and store_kind in DATABASES:
        world.delay = slowness(f"{seed} {request.node.name}")
    yield world
    await world.close()


@pytest.fixture
async def memory() -> AsyncIterator[World]:
    """A world in memory alone, for what does not depend on the store: it is fast, and has no leases."""
    async with in_memory() as world:
        yield world


@pytest.fixture(autouse=True)
def receipts_are_valid(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever runs a test made: the receipts and handoffs that they left are of the published schemas."""
    is_asked = "tmp_path" in request.fixturenames and not request.node.get_closest_marker("spoils_receipts")
    directory: Path | None = request.getfixturevalue("tmp_path") if is_asked else None
    yield
    if directory is None:
        return
    for kind, read in ((RECEIPTS, read_receipt), (HANDOFFS, read_handoff)):
        for file in directory.rglob(f"{kind}/*"):
            if is_finished_file(file.name):
                read(file.read_bytes(), str(file))

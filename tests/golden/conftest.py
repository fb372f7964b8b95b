"""The databases of earlier versions, each as its version left it, and processes of today at them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onward.testing.clock import NOVEMBER_2023_US, ManualClock
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.cli.shell import Shell
from tests.golden.files import VERSIONS, read_manifest, unpack_postgres, unpack_sqlite
from tests.world import Process, World

YEAR_US = 365 * 24 * 3600 * 1_000_000
Restore = Callable[[str, str], str]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def restore(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Restore:
    """Makes databases of a kind and a version; PostgreSQL reads the rows of a version only once."""
    templates: dict[str, str] = {}

    def restored(kind: str, version: str) -> str:
        if kind == "sqlite":
            return unpack_sqlite(version, tmp_path_factory.mktemp("golden"))
        server: PostgresServer = request.getfixturevalue("postgres_server")
        if version not in templates:
            url = server.create_database()
            unpack_postgres(version, url)
            templates[version] = url.rpartition("/")[2]
        return server.create_database(template=templates[version])

    return restored


@pytest.fixture
def db(restore: Restore, kind: str, version: str) -> str:
    """A database that no newer version has opened yet."""
    return restore(kind, version)


@pytest.fixture
async def world(db: str) -> AsyncIterator[World]:
    world = World(lambda: open_store(db), "golden")
    yield world
    await world.close()


@pytest.fixture
async def process(world: World) -> Process:
    """A process of today at the old database."""
    return await world.process(clock=ManualClock(NOVEMBER_2023_US + YEAR_US))


@pytest.fixture
def shell(db: str, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, db)
    yield shell
    shell.close()


@pytest.fixture
def runs(version: str) -> dict[str, Any]:
    """What the manifest says of each run."""
    found: dict[str, Any] = read_manifest(version)["runs"]
    return found

"""`kill -9` of a server with 200 readers, again and again: each is told everything once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.wiring import open_store
from tests.cli.shell import Shell
from tests.conftest import Counted
from tests.server.serving import Serving, start
from tests.server.storm import Browser, Where, Writers

READERS, RUNS, KILLS = 200, 10, 3
TOKEN = "a-token-of-the-tests-of-storms"
SETTINGS = "[serve]\nstreams = 1000\nrequests = 100000\nburst = 100000\n"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def one_shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    is_postgres = request.param == "postgres"
    db = request.getfixturevalue("postgres_emptied_url") if is_postgres else str(tmp_path / "onward.db")
    shell = Shell(tmp_path, db)
    shell.environment["ONWARD_TOKEN"] = TOKEN
    (tmp_path / "onward.toml").write_text(SETTINGS)
    yield shell
    shell.close()


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.anyio
async def test_nothing_is_lost_or_repeated_when_a_server_is_killed_under_200_readers(
    one_shell: Shell, count: Counted
) -> None:
    """Readers of runs and of messages, early and late, come back to the next server with their cursor."""
    server = await asyncio.to_thread(_start, one_shell)
    where = Where(server.port, TOKEN)
    store = await open_store(one_shell.db, lease_s=600)  # its runs have no keeper
    writers, enough = Writers(store), asyncio.Event()
    await writers.begin(RUNS)
    paths = [f"/api/runs/steps-{one}/events" for one in range(RUNS)]
    paths += [f"/api/messages?of=says-{one}" for one in range(RUNS)]
    browsers = [Browser(where, paths[one % len(paths)], after=one % 3) for one in range(READERS)]
    async with asyncio.timeout(200), asyncio.TaskGroup() as group:
        writing = group.create_task(writers.write(enough))
        for one in browsers:
            group.create_task(one.follow())
        for kill in range(1, KILLS + 1):
            await _all_follow(browsers, kill)
            await asyncio.to_thread(server.kill)
            server = await asyncio.to_thread(_start, one_shell)
            where.port = server.port
        await _all_follow(browsers, KILLS + 1)
        enough.set()
        await writing
        await writers.end()
    told = await writers.check(browsers)
    connections = sum(one.connections for one in browsers)
    count(f"storm: {connections} connections were told {told:,} frames; nothing lost or repeated")
    await store.close()
    await asyncio.to_thread(server.kill)


def _start(shell: Shell) -> Serving:
    return start(shell, "--no-worker")


async def _all_follow(browsers: list[Browser], connections: int) -> None:
    """Wait until each has been connected so many times, and has been told something since."""
    seen = [len(one.ids) for one in browsers]
    while any(  # noqa: ASYNC110 - it is told in each of them
        one.connections < connections or len(one.ids) <= before
        for one, before in zip(browsers, seen, strict=True)
    ):
        await asyncio.sleep(0.05)

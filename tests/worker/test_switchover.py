"""A real worker while its PostgreSQL is read-only, or another server takes over: no step runs twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from onward.testing.postgres import PostgresServer
from tests.cli.shell import Shell, Started, pipeline
from tests.cli.turnstile import Turnstile
from tests.conformance.postgres import PostgresStandby
from tests.store.proxy import Network

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
AtWork = Callable[[str], tuple[Shell, Started]]
PATIENCE_S = 30


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False) as primary:
        yield primary


@pytest.fixture
def url(primary: PostgresServer) -> str:
    """An empty database on the primary."""
    return primary.create_database()


@pytest.fixture
def standby(primary: PostgresServer, url: str) -> Iterator[PostgresStandby]:
    with PostgresStandby(primary, fsync=False) as standby:
        yield standby


@pytest.fixture
def network(url: str) -> Iterator[Network]:
    """An address of its own that leads to the primary until it is told otherwise."""
    network = Network(url)
    yield network
    network.close()


@pytest.fixture
def at_work(tmp_path: Path, turnstile: Turnstile) -> Iterator[AtWork]:
    """Starts a worker at an address; returns when it stands in the middle of the first step of three."""
    shells: list[Shell] = []

    def at_work(address: str) -> tuple[Shell, Started]:
        shell = Shell(tmp_path, address)
        shells.append(shell)
        steps = ("a", shell.noting(turnstile.command)), ("b", shell.noting()), ("c", shell.noting())
        shell.write("job.dot", pipeline(*steps))
        assert shell.inside("submit", "job.dot", "--run-id", "job").code == 0
        started = shell.start("worker", "--until-idle")
        assert turnstile.arrival().step == "a#1"
        return shell, started

    yield at_work
    for shell in shells:
        shell.close()


def set_read_only(server: PostgresServer, value: str) -> None:
    """For every session, those that are open included: the server tells them, and then serves new ones."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")
    is_told = False
    while not is_told:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            is_told = connection.execute("SHOW default_transaction_read_only").fetchone() == (value,)


def wait_refused(server: PostgresServer, statement: str) -> None:
    """Until the server has refused such a statement; it says so in its log."""
    deadline_s = time.monotonic() + PATIENCE_S
    while statement not in (server.directory / "log").read_text():
        assert time.monotonic() < deadline_s, f"{statement} was never refused"
        time.sleep(0.005)


def assert_each_step_ran_once(shell: Shell, started: Started) -> None:
    done = started.end()
    assert done.code == 0, done
    assert shell.read("job")["status"] == "completed"
    assert shell.ledger == ["a#1", "b#1", "c#1"], done.out
    assert [event["kind"] for event in shell.log("job")].count("RunClaimed") == 1
    assert shell.inside("verify", "job").code == 0


def test_a_step_that_ends_while_the_server_is_read_only_is_not_repeated(
    primary: PostgresServer, url: str, at_work: AtWork, turnstile: Turnstile
) -> None:
    """A server that is read-only for a while is waited for, as in any other outage. I7."""
    shell, started = at_work(url)
    set_read_only(primary, "on")
    turnstile.let_through()
    wait_refused(primary, "INSERT INTO event")
    set_read_only(primary, "off")
    assert_each_step_ran_once(shell, started)


def test_a_worker_follows_its_address_from_a_demoted_server_to_the_new_primary(
    primary: PostgresServer, standby: PostgresStandby, network: Network, at_work: AtWork, turnstile: Turnstile
) -> None:
    """The demoted server keeps its connections and can be read; only new ones lead to the primary. I7."""
    shell, started = at_work(network.url)
    set_read_only(primary, "on")
    standby.catch_up()
    standby.promote()
    network.lead_to(standby.url())
    turnstile.let_through()
    assert_each_step_ran_once(shell, started)


def test_an_address_with_several_hosts_leads_to_the_one_that_can_be_written(
    primary: PostgresServer, standby: PostgresStandby, url: str, at_work: AtWork, turnstile: Turnstile
) -> None:
    """I7."""
    first, second = (urlsplit(server.url()).netloc.rpartition("@")[2] for server in (primary, standby))
    shell, started = at_work(url.replace(first, f"{first},{second}"))
    standby.catch_up()
    standby.promote()
    primary.follow(standby)
    turnstile.let_through()
    assert_each_step_ran_once(shell, started)

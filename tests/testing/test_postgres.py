"""The PostgreSQL server that other tests stand on."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from onward.errors import StoreUnavailable
from onward.testing.postgres import PostgresServer, find_binaries, find_system_binaries

pytestmark = pytest.mark.postgres

PARENT = """
import sys
from onward.testing.postgres import PostgresServer
server = PostgresServer(fsync=False)
server.start()
print(server.pid, server.directory, flush=True)
sys.stdin.read()
"""


def ask(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def wait_ended(pid: int, *, timeout_s: float) -> None:
    """Wait for a process that is not our child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], timeout_s)[0], f"process {pid} still runs after {timeout_s} s"
    finally:
        os.close(handle)


def test_databases_of_one_server_are_separate(postgres_server: PostgresServer) -> None:
    one, two = postgres_server.create_database(), postgres_server.create_database()
    with psycopg.connect(one) as connection:
        connection.execute("CREATE TABLE only_here (id INT)")
    assert ask(one, "SELECT to_regclass('only_here')::text") == "only_here"
    assert ask(two, "SELECT to_regclass('only_here')::text") is None


def test_a_database_can_be_copied_from_a_template(postgres_server: PostgresServer) -> None:
    original = postgres_server.create_database()
    with psycopg.connect(original) as connection:
        connection.execute("CREATE TABLE copied (id INT)")
    copy = postgres_server.create_database(template=urlsplit(original).path[1:])
    assert ask(copy, "SELECT to_regclass('copied')::text") == "copied"


def test_a_wrong_password_is_refused(postgres_url: str) -> None:
    password = urlsplit(postgres_url).password
    assert password
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres_url.replace(password, "guess"))


@pytest.mark.parametrize("fsync", [True, False])
def test_what_was_committed_survives_an_immediate_restart(fsync: bool) -> None:
    with PostgresServer(fsync=fsync) as server:
        url = server.create_database()
        assert ask(url, "SHOW fsync") == ("on" if fsync else "off")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept (id INT)")
        before = server.pid
        server.restart(immediate=True)
        assert server.pid != before
        assert ask(url, "SELECT count(*) FROM kept") == 0


def test_stopping_leaves_no_process_and_no_files() -> None:
    with PostgresServer(fsync=False) as server:
        directory, address = server.directory, urlsplit(server.url())
        pid = server.pid
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with socket.socket() as probe:
        assert probe.connect_ex((address.hostname, address.port)) != 0
    server.stop()


def test_a_failed_start_shows_what_the_program_said_and_leaves_nothing(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("initdb", "postgres"):
        (binaries / name).write_text("#!/bin/sh\necho the disk is made of cheese\nexit 1\n")
        (binaries / name).chmod(0o755)
    server = PostgresServer(binaries=binaries)
    with pytest.raises(StoreUnavailable, match="made of cheese"):
        server.start()
    with pytest.raises(StoreUnavailable, match="not running"):
        _ = server.directory


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_programs_in_a_closed_directory_are_copied_out_of_it(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    prefix = find_binaries().parent
    shutil.copytree(prefix, closed / prefix.parent.name / prefix.name, symlinks=True)
    libraries = prefix.parent.with_name(f"{prefix.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, closed / libraries.name)
    closed.chmod(0o700)
    with PostgresServer(fsync=False, binaries=closed / prefix.parent.name / prefix.name / "bin") as server:
        assert ask(server.url(), "SELECT 1") == 1


def test_the_operating_systems_programs_serve_as_well() -> None:
    found = next((place for place in find_system_binaries() if (place / "initdb").exists()), None)
    if found is None:
        pytest.skip("this system has no PostgreSQL of its own")
    with PostgresServer(fsync=False, binaries=found) as server:
        assert ask(server.create_database(), "SELECT 1") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_the_server_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split()
        parent.kill()
    wait_ended(int(pid), timeout_s=20)
    shutil.rmtree(directory)


def test_the_command_runs_a_server_until_interrupted() -> None:
    command = [sys.executable, "-m", "onward.testing.postgres", "--no-fsync"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert ask(process.stdout.readline().strip(), "SELECT 1") == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0

"""The effects of two attempts never overlap, however a worker is lost or kept from renewing (I29)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.shell import Shell, Started, pipeline, wait_until
from tests.store.proxy import Network
from tests.worker.ledger import Ledger

pytestmark = pytest.mark.slow
ENDLESS = ("--lease", "24h")
LEASE = ("--lease", "2s")


@pytest.fixture
def network(shell: Shell) -> Iterator[Network]:
    network = Network(shell.db)
    yield network
    network.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "effects")


def hang(worker: Started, network: Network) -> None:
    network.hang()


def cut(worker: Started, network: Network) -> None:
    network.cut()


def stop(worker: Started, network: Network) -> None:
    worker.signal(signal.SIGSTOP)


@contextmanager
def stopped(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


on_postgres = pytest.mark.parametrize(
    "shell", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)


@on_postgres
@pytest.mark.parametrize("fail", [hang, cut, stop])
@pytest.mark.parametrize("ignored", ["", "trap '' TERM; "], ids=["polite", "deaf to SIGTERM"])
def test_a_command_has_ended_before_another_worker_starts_it_again(
    shell: Shell, network: Network, ledger: Ledger, fail: Callable[[Started, Network], None], ignored: str
) -> None:
    """I29."""
    shell.write("job.dot", pipeline(("a", ignored + ledger.command)))
    assert shell.inside("submit", "job.dot", "--run-id", "job").code == 0
    first = shell.start("worker", *LEASE, "--db", network.url)
    ledger.wait_for_process(1)
    second = shell.start("worker", *LEASE)
    second.wait_for("at once")
    fail(first, network)
    ledger.wait_for_process(2)
    # By either: on a busy machine the first may lose its lease, and take the run again, before it fails.
    wait_until(lambda: shell.inside("status", "job", "--json").json["status"] == "completed")
    first.signal(signal.SIGCONT)
    assert ledger.overlaps_s() == {}
    finished = [event["step"] for event in shell.log("job") if event["kind"] == "StepFinished"]
    assert finished.count("a#1") == 1


def test_a_killed_workers_command_has_ended_before_another_worker_starts_it_again(
    shell: Shell, ledger: Ledger
) -> None:
    """Its supervisor kills the command; if that takes long, the run is not free before. I16, I29."""
    shell.write("job.dot", pipeline(("a", f"echo $PPID > supervisor; {ledger.command}")))
    assert shell.inside("submit", "job.dot", "--run-id", "job").code == 0
    first = shell.start("worker", *ENDLESS)
    ledger.wait_for_process(1)
    supervisor = int((shell.directory / "supervisor").read_text())
    with stopped(supervisor):
        first.signal(signal.SIGKILL)
        first.process.wait()
        second = shell.start("worker", *ENDLESS)
        second.wait_for("at once")
        assert not any(shell.inside("recover", "--json").json.values())
        assert len(ledger.lives()) == 1
    second.wait_for("run job completed")
    assert ledger.overlaps_s() == {}

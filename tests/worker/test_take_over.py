"""Real workers that die, freeze, or take long: whose run is taken, when, and what becomes of late writes."""

from __future__ import annotations

import signal
import sys
import uuid
from itertools import pairwise

import apsw
import psycopg
import pytest

import bench.elsewhere
from tests.cli.shell import Shell, Started, pipeline, wait_until
from tests.cli.turnstile import Arrival, Turnstile

pytestmark = pytest.mark.slow
RENEWALS = 6  # at least two leases long: a lease is renewed three times in its own length
ENDLESS = ("--lease", "24h")
SHORT = ("--lease", "1s")


def worker(shell: Shell, *words: str) -> Started:
    """A worker of this machine, ready to take runs."""
    started = shell.start("worker", *words)
    started.wait_for("at once")
    return started


def stranger(shell: Shell, *words: str) -> Started:
    """A worker that takes itself for one of another machine."""
    boot = uuid.uuid4().hex
    shell.write(boot, boot)
    before = (sys.executable, bench.elsewhere.__file__, str(shell.directory / boot))
    started = shell.start("worker", *words, before=before)
    started.wait_for("at once")
    return started


def submit(shell: Shell, turnstile: Turnstile) -> None:
    shell.write("job.dot", pipeline(("a", shell.noting(turnstile.command)), ("b", shell.noting())))
    assert shell.inside("submit", "job.dot", "--run-id", "job").code == 0


def claims(shell: Shell) -> list[int]:
    return [event["token"] for event in shell.log("job") if event["kind"] == "RunClaimed"]


def is_sound(shell: Shell) -> bool:
    """Whether the log is whole, its tokens never fall, and every step has one outcome."""
    log = shell.log("job")
    finished = [event["step"] for event in log if event["kind"] == "StepFinished"]
    tokens_rise = all(before["token"] <= after["token"] for before, after in pairwise(log))
    return shell.inside("verify", "job").code == 0 and tokens_rise and len(finished) == len(set(finished))


def lease_until_us(shell: Shell) -> int:
    query = "SELECT lease_until_us FROM run WHERE id = 'job'"
    if shell.db.startswith("postgresql"):
        with psycopg.connect(shell.db) as connection:
            found = connection.execute(query).fetchone()
    else:
        database = apsw.Connection(shell.db, flags=apsw.SQLITE_OPEN_READONLY)
        found = database.execute(query).fetchone()
        database.close()
    assert found is not None
    return int(found[0])


def test_a_killed_workers_run_is_taken_over_by_one_that_sees_it_die(
    shell: Shell, turnstile: Turnstile
) -> None:
    """Nobody waits for the lease: it would last for a day."""
    dying = worker(shell, *ENDLESS)
    submit(shell, turnstile)
    turnstile.arrival()
    other = worker(shell, *ENDLESS)
    dying.signal(signal.SIGKILL)
    assert turnstile.arrival() == Arrival("job", "a#1", 1)
    turnstile.let_through()
    other.wait_for("run job completed")
    assert shell.ledger == ["a#1", "a#1", "b#1"]
    assert claims(shell) == [1, 2, 3]
    assert is_sound(shell)


def test_a_killed_workers_run_is_taken_over_on_another_machine_when_its_lease_is_over(
    shell: Shell, turnstile: Turnstile
) -> None:
    dying = stranger(shell, *SHORT)
    submit(shell, turnstile)
    turnstile.arrival()
    other = worker(shell, *SHORT)
    dying.signal(signal.SIGKILL)
    assert turnstile.arrival() == Arrival("job", "a#1", 1)
    turnstile.let_through()
    other.wait_for("run job completed")
    assert claims(shell) == [1, 2, 3]
    assert is_sound(shell)


def test_b2_1_a_step_longer_than_the_lease_is_not_stolen(shell: Shell, turnstile: Turnstile) -> None:
    """B2-1: another machine's worker sees only the lease, which is renewed while the step runs."""
    slow = worker(shell, *SHORT)
    submit(shell, turnstile)
    turnstile.arrival()
    other = stranger(shell, *SHORT)
    seen: set[int] = set()

    def is_renewed_often() -> bool:
        seen.add(lease_until_us(shell))
        return len(seen) > RENEWALS

    wait_until(is_renewed_often)
    assert max(seen) - min(seen) > 1_000_000
    turnstile.let_through()
    slow.wait_for("run job completed")
    assert turnstile.is_empty
    assert shell.ledger == ["a#1", "b#1"]
    assert claims(shell) == [1]
    other.signal(signal.SIGTERM)
    assert "0 runs executed" in other.end().out


@pytest.mark.parametrize("shell", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_b2_2_a_frozen_workers_run_is_taken_after_its_lease_and_its_late_write_is_refused(
    shell: Shell, turnstile: Turnstile
) -> None:
    """B2-2: its step has finished when it wakes, and what it then wants to write is not written."""
    frozen = worker(shell, *SHORT)
    submit(shell, turnstile)
    turnstile.arrival()
    other = worker(shell, *SHORT)
    frozen.signal(signal.SIGSTOP)
    turnstile.let_through()  # the command goes on and ends; only its worker cannot see it
    assert turnstile.arrival() == Arrival("job", "a#1", 1)
    before = shell.log("job")
    frozen.signal(signal.SIGCONT)
    frozen.wait_for("run job was taken over by another process")
    assert shell.log("job") == before
    turnstile.let_through()
    other.wait_for("run job completed")
    assert shell.ledger == ["a#1", "a#1", "b#1"]
    assert is_sound(shell)
    outcome = {event["step"]: event["token"] for event in shell.log("job") if event["kind"] == "StepFinished"}
    assert (outcome["a#1"], outcome["b#1"]) == (3, 3)

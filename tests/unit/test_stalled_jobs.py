"""Document 002's tests of crash recovery and of SKIP LOCKED, by their own names, on both databases.

Its words and ours: a checkpoint that is `pending` is a queued run and one that is `processing` a running one;
the lock with its time is a lease, and a stalled job is a run whose owner died. The processes are real ones.
"""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from tests.cli.shell import Shell, Started, pipeline
from tests.cli.turnstile import Arrival, Turnstile
from tests.worker.conftest import shell as shell
from tests.worker.conftest import turnstile as turnstile

pytestmark = pytest.mark.slow
WORKERS, AT_ONCE = 3, 2
JOBS = WORKERS * AT_ONCE


def submit(shell: Shell, turnstile: Turnstile, *run_ids: str) -> None:
    """Runs of three steps each; in the second one they stand at the turnstile."""
    steps = ("a", shell.noting()), ("b", shell.noting(turnstile.command)), ("c", shell.noting())
    shell.write("jobs.dot", pipeline(*steps))
    for run_id in run_ids:
        assert shell.inside("submit", "jobs.dot", "--run-id", run_id).code == 0


def kill(worker: Started) -> None:
    worker.signal(signal.SIGKILL)
    worker.end()


def kinds(shell: Shell, run_id: str) -> Counter[str]:
    return Counter(event["kind"] for event in shell.log(run_id))


def test_crash_recovery(shell: Shell, turnstile: Turnstile) -> None:
    """S2-26, S2-28: kill the process during generation, run the resume worker, and generation continues."""
    submit(shell, turnstile, "job")
    first = shell.start("worker")
    assert turnstile.arrival() == Arrival("job", "b#1", 1)
    kill(first)
    second = shell.start("worker")
    assert turnstile.arrival() == Arrival("job", "b#1", 1)
    turnstile.let_through()
    second.wait_for("run job completed")
    assert shell.ledger == ["a#1", "b#1", "b#1", "c#1"]
    assert shell.inside("verify", "job").code == 0


def test_skip_locked(shell: Shell, turnstile: Turnstile) -> None:
    """S2-4, S2-27: start several workers, create several pending checkpoints, and nothing is processed twice.

    There are as many runs as all workers together can drive: when all stand at the turnstile, each worker
    must have taken its share while the others did.
    """
    jobs = [f"job-{number}" for number in range(JOBS)]
    workers = [shell.start("worker", "--concurrency", str(AT_ONCE)) for _ in range(WORKERS)]
    submit(shell, turnstile, *jobs)
    assert sorted(arrival.run_id for arrival in turnstile.arrivals(JOBS)) == jobs
    held = json.loads(shell.inside("workers", "--json").out)
    assert [len(worker["runs"]) for worker in held] == [AT_ONCE] * WORKERS
    turnstile.let_through(JOBS)
    for worker in workers:
        worker.wait_for(r"run job-\d+ completed", times=AT_ONCE)
    assert Counter(shell.ledger) == {"a#1": JOBS, "b#1": JOBS, "c#1": JOBS}
    for job in jobs:
        assert kinds(shell, job)["RunClaimed"] == 1
    assert turnstile.is_empty


def test_resume_stalled_checkpoints_without_duplicates(shell: Shell, turnstile: Turnstile) -> None:
    """Several workers find the jobs of one that died, and each job has one winner."""
    jobs = [f"job-{number}" for number in range(JOBS)]
    submit(shell, turnstile, *jobs)
    stalling = shell.start("worker", "--concurrency", str(JOBS))
    turnstile.arrivals(JOBS)
    workers = [shell.start("worker", "--concurrency", str(AT_ONCE)) for _ in range(WORKERS)]
    for worker in workers:
        worker.wait_for("at once")
    kill(stalling)
    assert sorted(arrival.run_id for arrival in turnstile.arrivals(JOBS)) == jobs
    turnstile.let_through(JOBS)
    for worker in workers:
        worker.wait_for(r"run job-\d+ completed", times=AT_ONCE)
    assert Counter(shell.ledger) == {"a#1": JOBS, "b#1": 2 * JOBS, "c#1": JOBS}
    for job in jobs:
        # The first owner's, that of whoever found it dead, and that of whoever went on.
        assert [event["token"] for event in shell.log(job) if event["kind"] == "RunClaimed"] == [1, 2, 3]
        assert shell.inside("verify", job).code == 0

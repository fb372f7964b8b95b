"""The second signal ends the process whatever a handler does, and another process continues the run."""

from __future__ import annotations

import signal

import pytest

from tests.cli.shell import Shell, Started, wait_for_file

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(180)]

# Each says in a file that it is there, and then does not react to anything.
APP = """
import asyncio, ctypes, os, pathlib, threading, time
from onward import Onward

app = Onward()
here = pathlib.Path(__file__).parent

def arrive(step):
    with open(here / "ledger", "a") as ledger:
        ledger.write(f"{step.run_id}\\n")
    arrived = here / f"arrived-{step.run_id}"
    is_first = not arrived.exists()
    arrived.touch()
    return is_first

@app.handler("sleeps")
async def sleeps(step):
    if arrive(step):
        time.sleep(3600)

@app.handler("computes")
async def computes(step):
    if arrive(step):
        while True:
            pass

def block_in_c():
    reader, _ = os.pipe()
    ctypes.CDLL(None).read(reader, ctypes.create_string_buffer(1), 1)

@app.handler("blocks")
async def blocks(step):
    if arrive(step):
        block_in_c()

@app.handler("swallows")
async def swallows(step):
    is_first = arrive(step)
    while is_first:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

@app.handler("thread")
def thread(step):
    if arrive(step):
        threading.Event().wait()

@app.handler("stuck")
def stuck(step):
    if arrive(step):
        block_in_c()

@app.handler("pool")
async def pool(step):
    if arrive(step):
        await asyncio.to_thread(threading.Event().wait)
"""
HOLDS = """
@app.handler("holds")
def holds(step):
    if arrive(step):
        reader, _ = os.pipe()
        ctypes.PyDLL(None).read(reader, ctypes.create_string_buffer(1), 1)
"""
WORK = "digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; a [type={kind}]; start -> a -> exit }}"
KINDS = ["sleeps", "computes", "blocks", "swallows", "thread", "stuck", "pool"]
SOON_S = 30  # it takes 5 s; the rest is for a busy machine


@pytest.fixture
def shell(any_shell: Shell) -> Shell:
    """A shell with an app whose handlers do not react."""
    any_shell.write("mine.py", APP)
    for kind in KINDS:
        any_shell.write(f"{kind}.dot", WORK.format(kind=kind))
    any_shell.environment["ONWARD_APP"] = "mine:app"
    return any_shell


def arrived(shell: Shell, run_id: str) -> None:
    """Until the run's step does not react any more."""
    wait_for_file(shell.directory / f"arrived-{run_id}")


def signal_twice(running: Started) -> None:
    """Two different signals: two of a kind that wait to be delivered would be one."""
    running.signal(signal.SIGTERM)
    running.signal(signal.SIGINT)


def test_the_second_signal_ends_a_foreground_run_and_it_can_be_resumed_at_once(shell: Shell) -> None:
    """All of them side by side, since each is given some seconds to react. I17."""
    running = {kind: shell.start("run", f"{kind}.dot", "--run-id", kind) for kind in KINDS}
    for kind, process in running.items():
        arrived(shell, kind)
        signal_twice(process)
    codes = {kind: process.process.wait(SOON_S) for kind, process in running.items()}
    assert codes == dict.fromkeys(KINDS, 75)
    resumed = [process.end() for process in [shell.start("resume", kind) for kind in KINDS]]
    assert [(done.code, done.err) for done in resumed] == [(0, "")] * len(KINDS)
    assert sorted(shell.ledger) == sorted([*KINDS, *KINDS])
    assert shell.inside("verify").code == 0


def test_the_second_signal_ends_a_worker_and_another_continues_its_runs(shell: Shell) -> None:
    """I17."""
    kinds = ["computes", "swallows", "thread"]
    for kind in kinds:
        assert shell.inside("submit", f"{kind}.dot", "--run-id", kind).code == 0
    workers = [shell.start("worker", "--concurrency", "1") for _ in kinds]
    for kind in kinds:
        arrived(shell, kind)
    for worker in workers:
        signal_twice(worker)
    assert [worker.process.wait(SOON_S) for worker in workers] == [1, 1, 1]
    assert shell.inside("worker", "--until-idle").code == 0
    assert {shell.read(kind)["status"] for kind in kinds} == {"completed"}
    assert sorted(shell.ledger) == sorted([*kinds, *kinds])


def test_a_blocked_process_ends_after_its_grace_time_or_at_once_by_a_third_signal(shell: Shell) -> None:
    """I17."""
    shell.environment["ONWARD_GRACE"] = "1"
    once = shell.start("run", "sleeps.dot", "--run-id", "once")
    shell.environment["ONWARD_GRACE"] = "3600"
    thrice = shell.start("run", "sleeps.dot", "--run-id", "thrice")
    arrived(shell, "once")
    once.signal(signal.SIGTERM)
    arrived(shell, "thrice")
    thrice.signal(signal.SIGHUP)
    signal_twice(thrice)
    assert (thrice.process.wait(SOON_S), once.process.wait(SOON_S)) == (75, 75)
    going = shell.start("resume", "once")
    assert (going.end().code, shell.inside("resume", "thrice").code) == (0, 0)


def test_native_code_that_lets_no_thread_run_does_not_keep_the_process_alive(shell: Shell) -> None:
    """Nothing of ours can run, so nothing of ours can choose the exit code. I17."""
    shell.write("mine.py", APP + HOLDS)
    shell.write("holds.dot", WORK.format(kind="holds"))
    running = shell.start("run", "holds.dot", "--run-id", "holds")
    arrived(shell, "holds")
    signal_twice(running)
    assert running.process.wait(SOON_S) == -signal.SIGKILL
    assert shell.inside("resume", "holds").code == 0

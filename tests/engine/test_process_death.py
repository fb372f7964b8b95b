"""What is left of a command when we, its supervisor or the nursery are killed: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.errors import SpawnFailed
from onward.host import HostIdentity, is_process_gone
from onward.process import SystemSpawn
from tests.engine.processes import ANCESTORS, FAMILY, OWNED_BY, Post, Processes, processes_with, run

pytestmark = pytest.mark.crash

SURVIVAL_S_MAX = 30.0  # of patience: the kernel kills at once, but a busy machine is slow to do it


OWNER = """
import asyncio, os, signal, sys
from onward.process import SystemSpawn
command, mark = sys.argv[1:]
spawn = SystemSpawn()
def run(command):
    return spawn.run(command, env={"PATH": os.defpath, "MARK": mark}, cwd=None, timeout_s=None)
def say(*words):
    print(*words, flush=True)
"""
JUST_RUN = """
asyncio.run(run(command))
"""
FORK_MEANWHILE = """
def fork():
    sys.stdin.readline()
    if os.fork() == 0:
        say(os.getpid())
        signal.pause()
async def main():
    asyncio.get_running_loop().add_reader(0, fork)
    await run(command)
asyncio.run(main())
"""
RUN_SECOND = """
async def main():
    await run("true")
    say("ready")
    await run(command)
asyncio.run(main())
"""
RUN_IN_A_FORK = """
mine = asyncio.run(run(command)).stdout
child = os.fork()
if child == 0:
    say(os.getpid(), *asyncio.run(run(command)).stdout.split())
    sys.exit()
os.waitpid(child, 0)
say(os.getpid(), *mine.split())
say(os.getpid(), *asyncio.run(run(command)).stdout.split())
"""
TWO_NURSERIES = """
from onward.host import host_identity
other = SystemSpawn()
async def main():
    await other.run("true", env={}, cwd=None, timeout_s=None)
    running = asyncio.create_task(run(command))
    await asyncio.to_thread(sys.stdin.readline)
    other.close()
    say(host_identity().text())
    await running
asyncio.run(main())
"""
WITHOUT_DESCRIPTORS = """
import resource
from onward.errors import SpawnFailed
asyncio.run(run("true"))
async def main():
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(8):
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1 + spare, allowed[1]))
        try:
            say((await run(command)).stdout)
        except SpawnFailed as error:
            say(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, allowed)
    say((await run(command)).stdout)
asyncio.run(main())
"""


@contextlib.contextmanager
def owner_of(command: str, *, program: str = JUST_RUN, mark: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process of its own that runs this command."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER + program, command, mark],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as owner:
        try:
            yield owner
        finally:
            owner.kill()
        # Its supervisors inherit it: this ends when the last of them has, and they must have nothing to say.
        if owner.stderr is not None and not owner.stderr.closed:
            assert owner.stderr.read() == ""


def hear(owner: subprocess.Popen[str]) -> list[str]:
    assert owner.stdout is not None
    return owner.stdout.readline().split()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_nothing_survives_our_death(post: Post, number: int) -> None:
    with owner_of(f"trap '' TERM HUP; ({ANCESTORS}{FAMILY}) > {post.path}; cat /dev/zero") as owner:
        everything = post.read(6)
        assert everything.survivors() == everything.pids
        owner.send_signal(number)
        owner.wait()
        assert everything.survivors(SURVIVAL_S_MAX) == []


def test_nothing_survives_our_death_though_a_fork_of_ours_holds_the_sockets(post: Post) -> None:
    with owner_of(f"({ANCESTORS}{FAMILY}) > {post.path}; sleep 1000", program=FORK_MEANWHILE) as owner:
        everything = post.read(6)
        assert owner.stdin is not None
        owner.stdin.write("\n")
        owner.stdin.flush()
        [fork] = hear(owner)
        try:
            owner.kill()
            owner.wait()
            assert everything.survivors(SURVIVAL_S_MAX) == []
            os.kill(int(fork), 0)
        finally:
            os.kill(int(fork), signal.SIGKILL)


@pytest.mark.parametrize("delay_ms", range(0, 10))
def test_nothing_survives_if_we_die_while_a_command_starts(tmp_path: Path, delay_ms: int) -> None:
    with owner_of(f"{FAMILY} sleep 1000", program=RUN_SECOND, mark=str(tmp_path)) as owner:
        hear(owner)
        threading.Event().wait(delay_ms / 1000)  # not for something to happen, but to die at another instant
        owner.kill()
        owner.wait()
        while left := processes_with(f"MARK={tmp_path}"):
            with contextlib.suppress(ProcessLookupError):
                assert Processes(left).survivors(SURVIVAL_S_MAX) == []


def test_a_fork_of_ours_has_a_nursery_of_its_own_and_leaves_ours_alone() -> None:
    with owner_of(OWNED_BY, program=RUN_IN_A_FORK) as owner:
        fork, before, after = hear(owner), hear(owner), hear(owner)
    assert fork[0] == fork[4]
    assert before[0] == before[4] == after[4]
    assert before[3] == after[3] != fork[3]


def test_while_a_command_of_any_nursery_runs_its_process_is_not_taken_for_gone(post: Post) -> None:
    """Two apps of one process have a nursery each; the first that began may be the first that is closed."""
    with owner_of(f"({ANCESTORS}) > {post.path}; exec sleep 1000", program=TWO_NURSERIES) as owner:
        everything = post.read(3)
        assert owner.stdin is not None
        owner.stdin.write("\n")
        owner.stdin.flush()
        identity = HostIdentity.parse(hear(owner)[0])
        _, supervisor, nursery = everything.pids
        for pid in (nursery, supervisor):
            os.kill(pid, signal.SIGSTOP)  # so that the command is not killed at once
        owner.kill()
        owner.wait()
        try:
            assert is_process_gone(identity) is False
        finally:
            for pid in (nursery, supervisor):
                os.kill(pid, signal.SIGCONT)
        assert everything.survivors(SURVIVAL_S_MAX) == []
        assert is_process_gone(identity) is True


async def test_a_killed_supervisor_takes_its_command_with_it(spawn: SystemSpawn, post: Post) -> None:
    command = f"trap '' TERM HUP; ({ANCESTORS}{FAMILY}) > {post.path} 2>&1; cat /dev/zero"
    running = asyncio.create_task(run(spawn, command))
    everything = await post.receive(6)
    other = asyncio.create_task(run(spawn, f"echo $$ > {post.path}; exec sleep 1000"))
    bystander = await post.receive(1)
    supervisor, nursery = everything.pids[1:3]
    os.kill(supervisor, signal.SIGKILL)
    finished = await running
    assert everything.survivors() == [nursery]
    assert (finished.exit_code, finished.signal) == (None, signal.SIGKILL)
    assert bystander.survivors() == bystander.pids
    os.kill(bystander.pids[0], signal.SIGUSR1)
    assert (await other).signal == signal.SIGUSR1


async def test_if_supervisor_and_nursery_are_killed_the_kernel_still_kills_the_shell(
    spawn: SystemSpawn, post: Post
) -> None:
    running = asyncio.create_task(run(spawn, f"({ANCESTORS}) > {post.path}; exec sleep 1000"))
    everything = await post.receive(3)
    _, supervisor, nursery = everything.pids
    os.kill(nursery, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    assert (await running).signal == signal.SIGKILL
    assert everything.survivors(SURVIVAL_S_MAX) == []


async def test_a_killed_nursery_is_replaced_and_running_commands_go_on(
    spawn: SystemSpawn, post: Post
) -> None:
    running = asyncio.create_task(run(spawn, f"({ANCESTORS}) > {post.path}; sleep 1000"))
    everything = await post.receive(3)
    shell, supervisor, nursery = everything.pids
    os.kill(nursery, signal.SIGKILL)
    while nursery in everything.survivors(0.1):
        pass
    assert everything.survivors() == [shell, supervisor]
    assert (await run(spawn, "echo again")).stdout == "again\n"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert everything.survivors(SURVIVAL_S_MAX) == []


async def test_a_command_whose_request_was_lost_is_reported_as_not_started(
    spawn: SystemSpawn, tmp_path: Path
) -> None:
    _, _, nursery = (int(pid) for pid in (await run(spawn, ANCESTORS)).stdout.split())
    os.kill(nursery, signal.SIGSTOP)
    running = asyncio.create_task(run(spawn, f"touch {tmp_path}/ran"))
    await asyncio.sleep(0)
    os.kill(nursery, signal.SIGKILL)
    with pytest.raises(SpawnFailed, match="was not started"):
        await running
    assert not (tmp_path / "ran").exists()


def test_without_free_descriptors_a_command_is_refused_and_later_ones_run() -> None:
    with owner_of("echo ran", program=WITHOUT_DESCRIPTORS) as owner:
        answers, errors = owner.communicate()
        assert (owner.returncode, errors) == (0, "")
        lines = answers.split("\n")
        assert "starting a command failed: Too many open files; try again later." in lines
        assert lines[-3] == "ran"


async def test_closing_does_not_end_running_commands(spawn: SystemSpawn, post: Post) -> None:
    running = asyncio.create_task(run(spawn, f"echo $$ > {post.path}; sleep 0.2; echo finished"))
    await post.receive(1)
    spawn.close()
    assert (await running).stdout == "finished\n"


async def test_the_end_of_the_thread_that_ran_the_first_command_ends_nothing(spawn: SystemSpawn) -> None:
    first = await asyncio.to_thread(asyncio.run, run(spawn, OWNED_BY))
    thread_pool = asyncio.get_running_loop()
    await thread_pool.shutdown_default_executor()
    second = await run(spawn, OWNED_BY)
    assert first.stdout.split()[2:] == second.stdout.split()[2:]

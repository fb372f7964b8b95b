"""Who is alive, asked of real processes that are really killed, stopped and forked."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onward.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from onward.process import SystemSpawn
from onward.store.sqlite import presence
from onward.store.sqlite.presence import NETWORK, Alive, Presence, filesystem_of, probe

ANNOUNCE = """
import os, subprocess, sys
from onward.store.sqlite.presence import Presence
here = Presence.announce(sys.argv[1])
def say(*words): print(*words, flush=True)
def wait(): sys.stdin.readline()
"""

Start = Callable[[str], "Worker"]


class Worker:
    """A process that announced itself, and does what its program says until it is told to go on."""

    def __init__(self, directory: Path, program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ANNOUNCE + program, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "alive"


@pytest.fixture
def start(directory: Path) -> Iterator[Start]:
    workers: list[Worker] = []

    def started(program: str) -> Worker:
        workers.append(Worker(directory, program))
        return workers[-1]

    yield started
    for worker in workers:
        worker.process.kill()
        with worker.process:
            pass


@pytest.fixture
def here(directory: Path) -> Iterator[Presence]:
    presence = Presence.announce(str(directory))
    yield presence
    presence.close()


def test_a_process_that_announced_itself_is_alive_to_itself_and_to_others(
    start: Start, directory: Path
) -> None:
    worker = start(
        "from onward.store.sqlite.presence import probe\n"
        "say(here.worker); say(probe(sys.argv[1], here.worker)); wait()"
    )
    token = worker.hear()
    assert worker.hear() == "alive"
    assert probe(str(directory), token) is Alive.alive


def test_a_killed_process_is_dead_at_once(start: Start, directory: Path) -> None:
    worker = start("say(here.worker); wait()")
    token = worker.hear()
    worker.kill()
    assert probe(str(directory), token) is Alive.dead
    assert probe(str(directory), token) is Alive.dead, "asking must not change the answer"


def test_a_process_that_exits_without_closing_is_dead(start: Start, directory: Path) -> None:
    worker = start("say(here.worker)")
    token = worker.hear()
    worker.process.wait()
    assert probe(str(directory), token) is Alive.dead


def test_a_zombie_is_dead_though_its_pid_still_exists(start: Start, directory: Path) -> None:
    """H16."""
    worker = start("say(here.worker); wait()")
    token = worker.hear()
    worker.process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)
    os.kill(worker.process.pid, 0)
    assert probe(str(directory), token) is Alive.dead


def test_a_stopped_process_is_alive(start: Start, directory: Path) -> None:
    worker = start("say(here.worker); wait()")
    token = worker.hear()
    worker.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert probe(str(directory), token) is Alive.alive


def test_an_orderly_process_leaves_no_file_and_is_unknown(start: Start, directory: Path) -> None:
    worker = start("say(here.worker); wait(); here.close(); here.close(); say('closed'); wait()")
    token = worker.hear()
    worker.tell()
    assert worker.hear() == "closed"
    assert os.listdir(directory) == []
    assert probe(str(directory), token) is Alive.unknown


def test_the_file_is_gone_before_its_lock_is(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees the file without its lock says dead of a process that only says goodbye. H16."""
    here, seen, unlink = Presence.announce(str(directory)), list[Alive](), os.unlink

    def looked_at(path: str) -> None:
        seen.append(probe(str(directory), here.worker))
        unlink(path)

    monkeypatch.setattr(os, "unlink", looked_at)
    here.close()
    assert seen == [Alive.alive]
    assert probe(str(directory), here.worker) is Alive.unknown


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel cannot be asked, only tried")
def test_a_probe_asks_for_the_lock_and_never_tries_to_take_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has it for a moment would make the next one say alive of a process that is dead. H16."""
    here, asked, control = Presence.announce(str(directory)), list[int](), fcntl.fcntl

    def noted(fd: int, command: int, argument: bytes) -> object:
        asked.append(command)
        return control(fd, command, argument)

    def refused(fd: int, operation: int) -> None:
        raise AssertionError("a probe takes no lock")

    monkeypatch.setattr(fcntl, "fcntl", noted)
    for name in ("flock", "lockf"):
        monkeypatch.setattr(fcntl, name, refused)
    assert probe(str(directory), here.worker) is Alive.alive
    here.abandon()
    assert probe(str(directory), here.worker) is Alive.dead
    assert asked == [fcntl.F_OFD_GETLK] * 2


async def test_a_process_that_gave_up_its_presence_is_dead_although_it_runs_commands(
    here: Presence, directory: Path
) -> None:
    """Commands keep only a process alive that has ended: one that lives on has stopped what it abandoned."""
    spawn = SystemSpawn()
    await spawn.run("true", env={}, cwd=None, timeout_s=None)
    here.abandon()
    assert probe(str(directory), here.worker) is Alive.dead
    spawn.close()


def test_a_forked_child_does_not_keep_its_dead_parent_alive(start: Start, directory: Path) -> None:
    """H16."""
    worker = start("""
say(here.worker)
child = os.fork()
if child == 0:
    say(os.getpid())
wait()
""")
    token, child = worker.hear(), int(worker.hear())
    worker.kill()
    os.kill(child, 0)
    assert probe(str(directory), token) is Alive.dead


def test_a_forked_child_that_ends_or_closes_does_not_end_its_parent(start: Start, directory: Path) -> None:
    worker = start("""
say(here.worker)
if os.fork() == 0:
    here.close()
    sys.exit()
os.wait()
say('child gone')
wait()
""")
    token = worker.hear()
    assert worker.hear() == "child gone"
    assert probe(str(directory), token) is Alive.alive


def test_a_command_started_with_open_descriptors_does_not_keep_it_alive(
    start: Start, directory: Path
) -> None:
    worker = start("""
say(here.worker)
child = subprocess.Popen(['sleep', '60'], close_fds=False)
say(child.pid)
wait()
""")
    token, child = worker.hear(), int(worker.hear())
    try:
        worker.kill()
        os.kill(child, 0)
        assert probe(str(directory), token) is Alive.dead
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_fork_in_another_thread_never_catches_a_half_made_announcement(start: Start) -> None:
    worker = start("""
import glob, threading
stop, held = threading.Event(), []
def fork_all_the_time():
    while not stop.is_set():
        pid = os.fork()
        if pid == 0:
            inherited = [os.readlink(fd) for fd in glob.glob('/proc/self/fd/*') if os.path.exists(fd)]
            os._exit(sum(name.endswith('.lock') for name in inherited))
        held.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread = threading.Thread(target=fork_all_the_time)
thread.start()
while len(held) < 100:
    Presence.announce(sys.argv[1]).close()
stop.set()
thread.join()
say(sum(held))
""")
    assert worker.hear() == "0"


def test_every_announcement_has_a_name_of_its_own(directory: Path) -> None:
    first = Presence.announce(str(directory))
    first.close()
    second = Presence.announce(str(directory))
    try:
        assert first.worker.split(":")[0] != second.worker.split(":")[0]
        assert probe(str(directory), first.worker) is Alive.unknown
        assert probe(str(directory), second.worker) is Alive.alive
    finally:
        second.close()


def test_the_directory_and_the_file_are_private(here: Presence, directory: Path) -> None:
    (file,) = directory.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.name == here.worker.split(":")[0] + ".lock"


def test_a_missing_file_is_unknown_and_is_not_created(here: Presence, directory: Path) -> None:
    """H16."""
    (file,) = directory.iterdir()
    file.unlink()
    assert probe(str(directory), here.worker) is Alive.unknown
    assert list(directory.iterdir()) == []
    assert probe(str(directory / "nowhere"), here.worker) is Alive.unknown
    assert not (directory / "nowhere").exists()


def test_another_file_under_the_same_name_is_unknown(here: Presence, directory: Path) -> None:
    """H16."""
    (file,) = directory.iterdir()
    shutil.copy(file, directory / "copy")
    os.replace(directory / "copy", file)
    assert probe(str(directory), here.worker) is Alive.unknown


def test_another_nonce_in_the_same_file_is_unknown(here: Presence, directory: Path) -> None:
    """H16."""
    (file,) = directory.iterdir()
    for content in (b"", b"0" * 20, file.read_bytes() + b"0"):
        file.write_bytes(content)
        assert probe(str(directory), here.worker) is Alive.unknown


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
def test_a_planted_file_is_unknown_and_does_not_hold_up_the_probe(
    here: Presence, directory: Path, plant: Callable[[Path], None]
) -> None:
    (file,) = directory.iterdir()
    file.unlink()
    plant(file)
    nonce, _, boot, me = here.worker.split(":")
    assert probe(str(directory), f"{nonce}:{os.lstat(file).st_ino}:{boot}:{me}") is Alive.unknown
    if file.is_dir():
        file.rmdir()


def test_another_boot_is_unknown(here: Presence, directory: Path) -> None:
    """H16."""
    assert probe(str(directory), here.worker, boot_id="another-boot") is Alive.unknown


@pytest.mark.parametrize("token", ["", "x", "../../etc/passwd:1:b", "a:b:c", "\0", "00000000:1", "0" * 10**6])
def test_a_token_that_cannot_be_read_is_unknown(directory: Path, token: str) -> None:
    assert probe(str(directory), token) is Alive.unknown


def test_probing_from_many_threads_never_disturbs_the_holder(here: Presence, directory: Path) -> None:
    """H16."""
    answers: list[Alive] = []
    threads = [
        threading.Thread(
            target=lambda: answers.extend(probe(str(directory), here.worker) for _ in range(200))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [Alive.alive] * 800


@pytest.mark.parametrize(
    ("hold", "is_held"),
    [(presence.ofd_hold, presence.ofd_is_held), (presence.flock_hold, presence.flock_is_held)],
)
def test_both_kinds_of_lock_are_seen_from_another_open_file_and_only_held_once(
    tmp_path: Path, hold: Callable[[int], None], is_held: Callable[[int], bool]
) -> None:
    path = tmp_path / "lock"
    path.touch()
    holder, prober, rival = (os.open(path, mode) for mode in (os.O_RDWR, os.O_RDONLY, os.O_RDWR))
    assert not is_held(prober)
    hold(holder)
    assert is_held(prober)
    with pytest.raises(BlockingIOError):
        hold(rival)
    os.close(rival)
    assert is_held(prober), "closing another descriptor must not drop the lock"
    os.close(holder)
    assert not is_held(prober)
    os.close(prober)


def test_a_network_file_system_is_refused_by_name(directory: Path, tmp_path: Path) -> None:
    """H16."""
    table = Path("/proc/self/mountinfo").read_text()
    kind = filesystem_of(str(tmp_path))
    assert kind not in NETWORK
    mounts = tmp_path / "mountinfo"
    mounts.write_text(table.replace(f" - {kind} ", " - nfs4 "))
    with pytest.raises(StoreUnavailable, match=r"network file system \(nfs4\).*PostgreSQL"):
        Presence.announce(str(directory), mountinfo=str(mounts))
    assert list(directory.iterdir()) == []


def test_the_mount_of_a_directory_is_found_by_its_id_and_not_by_its_path(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(Path("/proc/self/mountinfo").read_text() + "999999 1 0:1 / / rw - nfs4 far:/ rw\n")
    assert filesystem_of(str(tmp_path), mountinfo=str(mounts)) == filesystem_of(str(tmp_path))
    assert filesystem_of("/proc") == "proc"


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot register this process in"):
        Presence.announce(str(tmp_path / "file" / "alive"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.ENOSPC, StoreFull), (errno.EROFS, StoreReadOnly), (errno.ENOLCK, StoreUnavailable)],
)
def test_the_cause_of_a_failed_announcement_is_told_apart(code: int, kind: type[StoreError]) -> None:
    error = presence._store_error("cannot announce", OSError(code, os.strerror(code)))
    assert type(error) is kind
    assert os.strerror(code) in str(error)

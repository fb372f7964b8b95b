"""Whether a process is gone, asked of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from onward.errors import InvalidInput
from onward.host import HostIdentity, host_identity, is_process_gone

SAY = """
import sys
from onward.host import host_identity
print(host_identity().text(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SAY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def other(process: subprocess.Popen[str]) -> HostIdentity:
    assert process.stdout is not None
    return HostIdentity.parse(process.stdout.readline().rstrip("\n"))


def test_this_process_is_not_gone() -> None:
    assert is_process_gone(host_identity()) is False


def test_another_running_process_is_not_gone(other: HostIdentity) -> None:
    assert is_process_gone(other) is False


def test_a_stopped_process_is_not_gone(process: subprocess.Popen[str], other: HostIdentity) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert is_process_gone(other) is False


def test_a_zombie_is_gone(process: subprocess.Popen[str], other: HostIdentity) -> None:
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_process_gone(other) is True


def test_a_reaped_process_is_gone(process: subprocess.Popen[str], other: HostIdentity) -> None:
    process.kill()
    process.wait()
    assert is_process_gone(other) is True


def test_a_pid_that_now_belongs_to_another_process_is_gone(other: HostIdentity) -> None:
    assert is_process_gone(replace(other, started=other.started - 1)) is True


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"boot_id": "another"}, {"pid_space": "1"}])
def test_nothing_is_known_of_another_machine_boot_or_container(change: dict[str, str]) -> None:
    assert is_process_gone(replace(host_identity(), pid=2**22 - 1, **change)) is None


@pytest.mark.parametrize("change", [{"boot_id": ""}, {"started": 0}, {"pid": 0}, {"pid": -1}])
def test_nothing_is_known_of_an_incomplete_identity(change: dict[str, object]) -> None:
    assert is_process_gone(replace(host_identity(), **change)) is None


def test_a_fork_has_an_identity_of_its_own() -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, host_identity().text().encode())
        os._exit(0)
    os.waitpid(child, 0)
    text = os.read(read_end, 10_000).decode()
    os.close(read_end)
    os.close(write_end)
    assert HostIdentity.parse(text).pid == child


def test_a_process_with_an_ugly_name_is_read_correctly(tmp_path: os.PathLike[str]) -> None:
    ugly = os.path.join(tmp_path, "a) Z (1 2")
    os.symlink("/bin/sleep", ugly)
    with subprocess.Popen([ugly, "60"]) as process:
        with open(f"/proc/{process.pid}/stat") as stat:
            started = int(stat.read().rpartition(")")[2].split()[19])
        assert is_process_gone(replace(host_identity(), pid=process.pid, started=started)) is False
        process.kill()


@given(host=st.text(), pid=st.integers(1), started=st.integers(0))
def test_an_identity_survives_being_written(host: str, pid: int, started: int) -> None:
    identity = HostIdentity(host, "8ea07973-77ed", pid, started, "4026531836")
    assert HostIdentity.parse(identity.text()) == identity


@pytest.mark.parametrize("text", ["", "a:b", "boot:one:2:3:host", "::::"])
def test_a_text_that_names_no_process_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="does not name a process"):
        HostIdentity.parse(text)

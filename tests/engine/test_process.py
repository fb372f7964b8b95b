"""Commands as real processes: what they see and say, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
from pathlib import Path

import pytest

from onward.clock import Deadline, SystemClock
from onward.errors import InvalidInput, SpawnFailed
from onward.process import SystemSpawn
from tests.engine.processes import ANCESTORS, ENV, FAMILY, Post, processes_with, run

# --- what a command sees and says


async def test_a_command_reports_its_output_and_its_exit_code(spawn: SystemSpawn) -> None:
    finished = await run(spawn, "echo said; echo complained >&2; exit 3")
    assert (finished.stdout, finished.stderr) == ("said\n", "complained\n")
    assert (finished.exit_code, finished.signal) == (3, None)
    assert (finished.timed_out, finished.truncated) == (False, False)
    assert 0 < finished.duration_s < 30


async def test_a_command_killed_by_a_signal_reports_the_signal(spawn: SystemSpawn) -> None:
    finished = await run(spawn, "kill -SEGV $$")
    assert (finished.exit_code, finished.signal) == (None, signal.SIGSEGV)


async def test_the_environment_is_exactly_what_was_given(spawn: SystemSpawn) -> None:
    env = {"PATH": os.defpath, "EMPTY": "", "TWO LINES": "a\nb=c", "ÄÖ": "\N{SNOWMAN}"}
    finished = await spawn.run("cat /proc/$$/environ | tr '\\0' '|'", env=env, cwd=None, timeout_s=None)
    assert set(finished.stdout.split("|")) == {f"{name}={value}" for name, value in env.items()} | {""}


async def test_a_command_cannot_read_our_environment_from_the_processes_above_it(spawn: SystemSpawn) -> None:
    finished = await run(
        spawn,
        """
        pid=$PPID
        for level in supervisor nursery; do
            cat /proc/$pid/environ; cat /proc/$pid/cmdline | tr '\\0' ' '; echo
            pid=$(sed 's/.*) //' /proc/$pid/stat | cut -d' ' -f2)
        done
        echo $pid
        """,
    )
    *above, us = finished.stdout.splitlines()
    assert int(us) == os.getpid()
    assert len(above) == 2
    for line in above:
        assert line.startswith(sys.executable), "nothing may come before the command line"


async def test_a_command_has_no_descriptors_but_its_three(spawn: SystemSpawn) -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        finished = await run(spawn, "for fd in /proc/$$/fd/*; do test -e $fd && echo ${fd##*/}; done")
    finally:
        os.close(descriptor)
    assert finished.stdout.split() == ["0", "1", "2"]


async def test_a_command_ignores_and_blocks_no_signal(spawn: SystemSpawn) -> None:
    finished = await run(spawn, "grep -E 'Sig(Ign|Blk)' /proc/self/status")
    masks = [int(line.split()[1], 16) for line in finished.stdout.splitlines()]
    # 32 and 33 are the C library's own: whoever posix_spawns us, as make does, leaves them ignored.
    assert [mask & ~(0b11 << 31) for mask in masks] == [0, 0]


async def test_a_command_has_a_session_of_its_own(spawn: SystemSpawn) -> None:
    finished = await run(spawn, "echo $$; sed 's/.*) //' /proc/$$/stat | cut -d' ' -f3,4")
    pid, group, session = finished.stdout.split()
    assert pid == group == session


async def test_a_command_runs_in_the_directory_it_is_given(spawn: SystemSpawn, tmp_path: Path) -> None:
    place = tmp_path / "ä b'\"$(c)"
    place.mkdir()
    finished = await spawn.run("pwd", env=ENV, cwd=str(place), timeout_s=None)
    assert finished.stdout == f"{place}\n"


async def test_without_a_directory_a_command_runs_where_we_are_now(
    spawn: SystemSpawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(spawn, "true")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    assert (await run(spawn, "pwd")).stdout == f"{tmp_path}\n"
    assert (await spawn.run("pwd", env=ENV, cwd="below", timeout_s=None)).stdout == f"{tmp_path}/below\n"


@pytest.mark.parametrize("place", ["missing", "file"])
async def test_a_directory_that_cannot_be_used_is_a_clear_error(
    spawn: SystemSpawn, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=f"cannot run a command in '.*{place}'.*create the directory"):
        await spawn.run("true", env=ENV, cwd=str(tmp_path / place), timeout_s=None)


@pytest.mark.parametrize("size", [0, 1, 1 << 20])
async def test_a_command_reads_what_it_is_given(spawn: SystemSpawn, size: int) -> None:
    finished = await run(spawn, "cat | wc -c", stdin=b"x" * size)
    assert finished.stdout == f"{size}\n"


async def test_a_command_may_ignore_what_it_is_given(spawn: SystemSpawn) -> None:
    finished = await run(spawn, "echo done", stdin=b"x" * (1 << 22))
    assert finished.stdout == "done\n"


async def test_input_comes_back_byte_for_byte(spawn: SystemSpawn) -> None:
    text = "".join(chr(code) for code in range(1, 0x3000))
    finished = await run(spawn, "cat", stdin=text.encode())
    assert finished.stdout == text


@pytest.mark.parametrize(
    ("command", "env"),
    [("true\0", {}), ("true", {"A": "b\0"}), ("true", {"A=B": "c"}), ("true", {"": "c"}), ("\ud800", {})],
)
async def test_what_cannot_be_passed_on_is_refused(
    spawn: SystemSpawn, command: str, env: dict[str, str]
) -> None:
    with pytest.raises(InvalidInput):
        await spawn.run(command, env=env, cwd=None, timeout_s=None)


async def test_a_command_that_is_too_long_is_refused(spawn: SystemSpawn) -> None:
    with pytest.raises(InvalidInput, match="too long"):
        await run(spawn, "true " + "x" * (1 << 20))


@pytest.mark.parametrize("timeout_s", [0, -1, math.nan])
async def test_a_time_limit_that_cannot_be_kept_is_refused(spawn: SystemSpawn, timeout_s: float) -> None:
    with pytest.raises(InvalidInput, match="time limit"):
        await run(spawn, "true", timeout_s=timeout_s)


async def test_bytes_that_are_no_text_are_replaced(spawn: SystemSpawn) -> None:
    finished = await run(spawn, r"printf 'a\377b\000c\303\244'")
    assert finished.stdout == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}cä"
    assert not finished.truncated


async def test_of_too_much_output_the_end_is_kept() -> None:
    spawn = SystemSpawn(output_bytes_max=10)
    try:
        assert (await run(spawn, "printf 0123456789")).truncated is False
        finished = await run(spawn, "printf 0123456789A; printf x >&2")
    finally:
        spawn.close()
    assert (finished.stdout, finished.stderr, finished.truncated) == ("123456789A", "x", True)


@pytest.mark.parametrize("spare", range(5))
async def test_output_is_never_cut_inside_a_character(spare: int) -> None:
    spawn = SystemSpawn(output_bytes_max=20 + spare)
    try:
        finished = await run(spawn, "printf '\U0001f600%.0s' 1 2 3 4 5 6 7 8 9")
    finally:
        spawn.close()
    assert finished.stdout == "\U0001f600" * (5 + spare // 4)


async def test_a_flood_of_output_is_read_to_its_end(spawn: SystemSpawn) -> None:
    finished = await run(spawn, "head -c 30000000 /dev/zero | tr '\\0' x; echo end")
    assert (len(finished.stdout), finished.stdout[-5:], finished.truncated) == (1 << 20, "xend\n", True)


async def test_many_commands_at_once_keep_their_output_apart(spawn: SystemSpawn) -> None:
    finished = await asyncio.gather(*(run(spawn, f"echo {n}; echo {n} >&2; exit {n}") for n in range(40)))
    assert [(f.stdout, f.stderr, f.exit_code) for f in finished] == [
        (f"{n}\n", f"{n}\n", n) for n in range(40)
    ]


async def test_running_commands_leaves_no_descriptor_open(spawn: SystemSpawn) -> None:
    async def each_kind() -> None:
        await run(spawn, "echo", stdin=b"x")
        await run(spawn, "sleep 1000", timeout_s=0.01)
        with pytest.raises(InvalidInput):
            await spawn.run("true", env=ENV, cwd="/nowhere", timeout_s=None)
        task = asyncio.create_task(run(spawn, "sleep 1000"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await each_kind()
    before = len(os.listdir("/proc/self/fd"))
    await each_kind()
    assert len(os.listdir("/proc/self/fd")) == before


# --- how everything ends


async def test_a_time_limit_ends_the_command_and_its_family(spawn: SystemSpawn, post: Post) -> None:
    running = asyncio.create_task(
        run(spawn, f"({FAMILY}) > {post.path}; echo before; sleep 1000", timeout_s=1)
    )
    family = await post.receive(3)
    finished = await running
    assert family.survivors() == []
    assert (finished.timed_out, finished.signal, finished.stdout) == (True, signal.SIGTERM, "before\n")


async def test_a_terminated_command_may_say_goodbye(spawn: SystemSpawn) -> None:
    finished = await run(spawn, "trap 'echo goodbye; exit 7' TERM; sleep 1000 & wait", timeout_s=0.3)
    assert (finished.timed_out, finished.exit_code, finished.stdout) == (True, 7, "goodbye\n")


async def test_a_command_that_is_ended_before_it_has_started_gets_the_signal() -> None:
    spawn = SystemSpawn(grace_s=1000)
    try:
        finished = await run(spawn, "sleep 1000", timeout_s=1e-9)
    finally:
        spawn.close()
    assert (finished.timed_out, finished.signal) == (True, signal.SIGTERM)


async def test_a_stopped_command_is_terminated_too(spawn: SystemSpawn) -> None:
    finished = await run(spawn, "kill -STOP $$", timeout_s=0.3)
    assert (finished.timed_out, finished.signal) == (True, signal.SIGTERM)


async def test_a_command_that_will_not_end_is_killed_after_the_grace_time(post: Post) -> None:
    spawn = SystemSpawn(grace_s=0.2)
    try:
        running = asyncio.create_task(
            run(
                spawn,
                f"trap '' TERM HUP; ({FAMILY}) > {post.path}; while :; do sleep 1000; done",
                timeout_s=0.5,
            )
        )
        family = await post.receive(3)
        finished = await running
    finally:
        spawn.close()
    assert family.survivors() == []
    assert (finished.timed_out, finished.signal) == (True, signal.SIGKILL)
    assert 0.7 <= finished.duration_s < 10


async def test_a_background_process_that_finishes_soon_is_heard(spawn: SystemSpawn) -> None:
    finished = await run(spawn, "(sleep 0.2; echo late) & echo early; exit 4")
    assert (finished.stdout, finished.exit_code, finished.timed_out) == ("early\nlate\n", 4, False)


async def test_background_processes_that_stay_are_ended_and_do_not_hold_us_up(post: Post) -> None:
    spawn = SystemSpawn(linger_s=0.1)
    try:
        finished, family = await asyncio.gather(
            # They keep stdout and stderr open, and write their ids elsewhere.
            run(
                spawn, FAMILY.replace("echo $!", f"echo $! >{post.path}").replace("$$;", f"$$ >{post.path};")
            ),
            post.receive(3),
        )
    finally:
        spawn.close()
    assert family.survivors() == []
    assert (finished.exit_code, finished.timed_out) == (0, False)


async def test_a_command_that_keeps_forking_into_new_sessions_is_ended(
    spawn: SystemSpawn, post: Post
) -> None:
    again = f"trap '' TERM HUP; echo $$ > {post.path}; sleep 0.01; exec setsid --fork sh -c \"$AGAIN\""
    running = asyncio.create_task(
        spawn.run('sh -c "$AGAIN"; sleep 1000', env={**ENV, "AGAIN": again}, cwd=None, timeout_s=None)
    )
    (await post.receive(1)).survivors(10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(processes_with, "AGAIN=" + again) == []


async def test_cancellation_leaves_no_process(spawn: SystemSpawn, post: Post) -> None:
    running = asyncio.create_task(run(spawn, f"({FAMILY}) > {post.path}; sleep 1000"))
    family = await post.receive(3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert family.survivors() == []


async def test_the_nursery_is_not_in_our_session_so_ctrl_c_does_not_reach_it(spawn: SystemSpawn) -> None:
    _, _, nursery = (int(pid) for pid in (await run(spawn, ANCESTORS)).stdout.split())
    assert os.getsid(nursery) == nursery


async def test_a_second_cancellation_kills_at_once_and_none_leaves_a_process(post: Post) -> None:
    spawn = SystemSpawn(grace_s=1000)
    command = f"trap 'echo $$ > {post.path}' TERM; echo $$ > {post.path}; while :; do sleep 0.01; done"
    try:
        running = asyncio.create_task(run(spawn, command))
        shell = await post.receive(1)
        running.cancel()
        await post.receive(1)
        assert not running.done(), "the first one waits for the grace time"
        for _ in range(3):
            running.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running
    finally:
        spawn.close()
    assert shell.survivors() == []


async def test_cancellation_at_any_moment_of_the_start_leaves_no_process(
    spawn: SystemSpawn, tmp_path: Path
) -> None:
    await run(spawn, "true")
    mark = f"MARK={tmp_path}"
    outcomes = set()
    for turns in range(60):
        running = asyncio.create_task(
            spawn.run("true; true", env={**ENV, "MARK": str(tmp_path)}, cwd=None, timeout_s=None)
        )
        for _ in range(turns):
            # Each turn of the loop lets at least one message pass; every fifth waits for a real one.
            await asyncio.sleep(0.0005 if turns % 5 == 0 else 0)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        outcomes.add(running.cancelled())
        assert processes_with(mark) == []
    assert True in outcomes


# --- deadlines


async def test_everything_a_command_started_is_killed_at_its_deadline(spawn: SystemSpawn, post: Post) -> None:
    """Also what is deaf to SIGTERM and what moved to another session; nobody here tells the supervisor to."""
    now_s = SystemClock().awake_s
    deadline = Deadline(now_s() + 3600)
    running = asyncio.create_task(
        run(spawn, f"trap '' TERM; exec > {post.path}; {FAMILY}\nwait", deadline=deadline)
    )
    family = await post.receive(3)
    deadline.move(now_s() + 0.01)
    assert (await running).signal == signal.SIGKILL
    assert family.survivors() == []


async def test_a_command_outlives_a_deadline_that_moved(
    spawn: SystemSpawn, post: Post, tmp_path: Path
) -> None:
    clock, go = SystemClock(), tmp_path / "go"
    deadline = Deadline(clock.awake_s() + 0.5)
    command = f"echo $$ > {post.path}; while [ ! -e {go} ]; do sleep 0.02; done"
    running = asyncio.create_task(run(spawn, command, deadline=deadline))
    await post.receive(1)
    deadline.move(None)
    await clock.wait_s(0.6, asyncio.Event())  # past the first one
    go.touch()
    assert (await running).exit_code == 0


async def test_a_command_whose_deadline_has_passed_is_not_started(spawn: SystemSpawn, tmp_path: Path) -> None:
    with pytest.raises(SpawnFailed, match="the lease of its run had expired"):
        await run(spawn, f"touch {tmp_path}/begun", deadline=Deadline(SystemClock().awake_s()))
    assert not (tmp_path / "begun").exists()

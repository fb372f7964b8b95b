"""A process of the nursery is the one that would have been started anew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.nursery import INHERITED, Born, start

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux has a nursery")

WITNESS = """
import atexit, json, os, signal, sys, threading, time
atexit.register(print, "the end")
streams = [sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__]
print(json.dumps({
    "argv": sys.argv,
    "path": sys.path,
    "main": [__name__, sys.modules["__main__"].__dict__ is globals(), __file__],
    "flags": str(sys.flags),
    "directory": os.getcwd(),
    "environment": sorted(os.environ.items()),
    "zone": time.tzname,
    "streams": [[one.name, one.mode, one.encoding, one.errors, one.line_buffering] for one in streams],
    "signals": [str(signal.getsignal(one)).partition(" at 0x")[0] for one in signal.valid_signals()],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "group": [os.getpgrp(), os.getsid(0), os.umask(0o22)],
    "threads": threading.active_count(),
    "read": sys.stdin.read(),
}))
print("a word", file=sys.stderr)
sys.exit(7)
"""


def ending(process: Born | subprocess.Popen[bytes]) -> tuple[Any, list[str], str, int]:
    out, err = process.communicate(timeout=60)
    first, *rest = out.decode().splitlines()
    return json.loads(first), rest, err.decode(), process.wait()


@pytest.mark.parametrize("command", [["witness.py", "a b", "--c"], ["-m", "witness", "a b", "--c"]])
def test_it_is_like_one_that_was_started_anew(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "witness.py").write_text(WITNESS)
    script = [str(tmp_path / word) if word.endswith(".py") else word for word in command]
    environment = {"PATH": os.environ["PATH"], "TZ": "Asia/Tokyo", "HOME": str(tmp_path), **INHERITED}
    born = start(script, tmp_path, environment)
    assert isinstance(born, Born)
    anew = subprocess.Popen(
        [sys.executable, *script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    told, expected = ending(born), ending(anew)
    assert {name: (told[0][name], it) for name, it in expected[0].items() if told[0][name] != it} == {}
    assert told[1:] == expected[1:] == (["the end"], "a word\n", 7)


def test_two_in_a_row_hash_strings_differently(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text("print(hash('a word'))\n")
    said = [start([str(tmp_path / "says.py")], tmp_path, INHERITED).communicate()[0] for _ in range(4)]
    assert said[0] != said[1]
    assert said[:2] == said[2:]


def test_it_may_be_signalled_at_any_time(tmp_path: Path) -> None:
    """Also between its end and the word of it."""
    (tmp_path / "ends.py").write_text("")
    for _ in range(5):
        process = start([str(tmp_path / "ends.py")], tmp_path, INHERITED)
        while process.poll() is None:
            process.send_signal(0)
        process.communicate()
        assert process.returncode == 0


def test_it_is_killed_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import sys\nprint('here', flush=True)\nsys.stdin.read()\n")
    script = [str(tmp_path / "waits.py")]
    process = start(script, tmp_path, INHERITED, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) == process.poll() == process.returncode == -signal.SIGKILL
    process.communicate()
    process.kill()  # nobody


def test_what_an_interpreter_reads_when_it_starts_makes_it_a_new_process(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text("import sys\nprint(sys.stdout.encoding, sys.flags.dev_mode)\n")
    for name, text in (("PYTHONIOENCODING", "latin-1"), ("LC_ALL", "C"), ("PYTHONDEVMODE", "1")):
        process = start([str(tmp_path / "says.py")], tmp_path, {**INHERITED, name: text})
        assert isinstance(process, subprocess.Popen)
        process.communicate()

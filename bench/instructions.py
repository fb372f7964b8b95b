"""How many instructions a run of three steps takes, which no other process on the machine can change.

    python -m bench.instructions [TREE ...]

A tree is a checkout of this project, such as an older one to compare with; without any, this one. Times on a
shared machine differ by 15 % from minute to minute, instructions by 0.1 %. They are counted in our process
alone, which is where SQLite works, and not in a PostgreSQL server. They are no times, and the garbage
collector is off. Needs valgrind.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

EACH = 8
"""How many runs follow on one another in each of the lines that go at a time."""
AT_A_TIME = 50
COUNTED = re.compile(r"Collected : (\d+)")


def main(trees: Sequence[str]) -> int:
    """Print the counts of each tree, on both databases."""
    if shutil.which("valgrind") is None:
        print(
            "valgrind is not installed; install it (Debian, Ubuntu: apt install valgrind).", file=sys.stderr
        )
        return 2
    for tree in trees:
        if not (Path(tree) / "src" / "onward").is_dir():
            print(f"{tree} is not a checkout of this project: it has no src/onward.", file=sys.stderr)
            return 2
    from onward.testing.postgres import PostgresServer

    with PostgresServer(fsync=False) as server, tempfile.TemporaryDirectory() as directory:
        for tree in trees:
            on_sqlite = counted(tree, lambda: tempfile.mkdtemp(dir=directory) + "/runs.db")
            on_postgres = counted(tree, server.create_database)
            print(f"{tree}: SQLite {on_sqlite:,}, PostgreSQL {on_postgres:,} instructions a run", flush=True)
    return 0


def counted(tree: str, fresh: Callable[[], str]) -> int:
    """Instructions of one run: what many take more than none, so that starting up does not count."""
    none, many = (_instructions(tree, each, fresh()) for each in (0, EACH))
    return (many - none) // (EACH * AT_A_TIME)


def _instructions(tree: str, each: int, db: str) -> int:
    """How many a process takes that executes `each` runs in each line."""
    with tempfile.TemporaryDirectory() as directory:
        out = f"--callgrind-out-file={directory}/out"
        command = ["valgrind", "--tool=callgrind", out, sys.executable, os.path.abspath(__file__)]
        ended = subprocess.run(
            [*command, "--play", str(each), db],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": "src", "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
    found = COUNTED.search(ended.stderr)
    if ended.returncode or found is None:
        raise SystemExit(f"the runs of {tree} failed:\n{ended.stderr}")
    return int(found[1])


async def play(each: int, db: str) -> None:
    """Execute runs, whatever version of the package is here."""
    sys.path.insert(0, os.getcwd())
    pipelines = importlib.import_module("bench.pipelines")
    requests = importlib.import_module("onward.engine.control.requests")
    try:
        wiring = importlib.import_module("onward.wiring")
    except ImportError:  # in older ones
        wiring = importlib.import_module("onward.wiring")
    store = await wiring.open_store(db)
    engine = pipelines.engine_on(store)
    pipeline = engine.sources.prepare(pipelines.line(3), "<three>")

    async def in_turn(runs: int) -> None:
        for _ in range(runs):
            await engine.start(pipeline, requests.StartRequest())

    await asyncio.gather(*(in_turn(1) for _ in range(AT_A_TIME)))
    gc.disable()  # when it begins depends on what was made before
    await asyncio.gather(*(in_turn(each) for _ in range(AT_A_TIME)))
    await store.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        asyncio.run(play(int(sys.argv[2]), sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1:] or ["."]))

"""The floor of files: what a run leaves, written by bare calls and synced in batches, and nothing else."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from onward.receipts.folder import sync_files


@dataclass(frozen=True, slots=True)
class Left:
    """The directories that a run left, outer ones first, and its files with their content."""

    directories: Sequence[str]
    files: Sequence[tuple[str, bytes]]


def left_by(run_directory: str) -> Left:
    """What is in the directory of a run that is over."""
    directories, files = list[str](), list[tuple[str, bytes]]()
    for at, _, names in os.walk(run_directory):
        directories.append(os.path.relpath(at, run_directory))
        for name in names:
            with open(os.path.join(at, name), "rb") as file:
                files.append((os.path.relpath(file.name, run_directory), file.read()))
    return Left(directories, files)


def files_rate(root: str, left: Left, runs: int, at_a_time: int, syncs: int) -> float:
    """Runs per second: every file is written and renamed, and the first `syncs` of each run are synced."""
    began = time.perf_counter()
    for first in range(0, runs, at_a_time):
        open_files = list[int]()
        for number in range(first, min(first + at_a_time, runs)):
            open_files += _written(os.path.join(root, str(number)), left, syncs)
        assert not sync_files(open_files)
    return runs / (time.perf_counter() - began)


def line_rate(root: str, left: Left, steps: int) -> float:
    """Steps per second of a line: three files each, of which two are synced together, then a bare commit."""
    pages = [content for name, content in left.files if name.count("/") == 2][:2]
    os.makedirs(root, mode=0o700)
    with contextlib.closing(apsw.Connection(os.path.join(root, "floor.db"))) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE floor (body TEXT)")
        began = time.perf_counter()
        for number in range(steps):
            files = [(f"{number}-{page}.json", content) for page, content in enumerate(pages)]
            one = Left([f"{number}/1"], [*files, (f"{number}/1/status.json", b"{}")])
            assert not sync_files(_written(root, one, len(files)))
            db.execute("INSERT INTO floor VALUES (?)", ("x" * 500,))
        return steps / (time.perf_counter() - began)


def _written(directory: str, left: Left, syncs: int) -> list[int]:
    for name in left.directories:
        os.makedirs(os.path.join(directory, name), mode=0o700)
    kept = list[int]()
    for number, (name, content) in enumerate(left.files):
        path = os.path.join(directory, name)
        file = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(file, content)
        os.rename(f"{path}.part", path)
        if number < syncs:
            kept.append(file)
        else:
            os.close(file)
    return kept

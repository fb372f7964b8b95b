"""The floor of files: what a run leaves, written by bare calls and synced in batches, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from onward.receipts.syncing import sync_files


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

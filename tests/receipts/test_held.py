"""Directories that are held open: the way is not walked again, and what stands in it is still refused."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from onward.entry import InTheWay
from onward.model.ids import Identity
from onward.receipts.folder import Folder, HeldDirectories
from onward.receipts.run_directory import Homes

PAGES = ("run", "flow", "pages")


@pytest.fixture
def held() -> HeldDirectories:
    return HeldDirectories()


@pytest.fixture
def folder(tmp_path: Path, held: HeldDirectories) -> Folder:
    """With a directory that is held open."""
    folder = Folder(str(tmp_path / "runs"), held=held)
    folder.write(PAGES, "a.json", b"a")
    assert len(held) == 2, "and the top, which leads to all others"
    return folder


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_directory_that_is_exchanged_for_a_link_is_refused(folder: Folder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for depth in (3, 2):
        there = Path(folder.path(*PAGES[:depth]))
        there.rename(tmp_path / f"away-{depth}")
        there.symlink_to(elsewhere, target_is_directory=True)
        with pytest.raises(InTheWay, match="is not a directory"):
            folder.write(PAGES, "b.json", b"b")
        there.unlink()
        (tmp_path / f"away-{depth}").rename(there)
    assert list(elsewhere.iterdir()) == []
    assert folder.names(PAGES) == ["a.json"], "nor is anything written where the directory was moved to"


def test_a_directory_that_was_removed_is_made_again(folder: Folder) -> None:
    shutil.rmtree(folder.path("run"))
    folder.write(PAGES, "b.json", b"b")
    assert folder.names(PAGES) == ["b.json"]


def test_a_new_directory_under_the_same_name_is_the_one_that_counts(folder: Folder) -> None:
    folder.make_new(("run", "a", "1"))
    folder.write(("run", "a", "1"), "status.json", b"old")
    folder.make_new(("run", "a", "1"))
    assert folder.read(("run", "a", "1"), "status.json", limit=9) is None
    assert folder.read(("run", "a", "1.before-1"), "status.json", limit=9) == b"old"


def test_another_databases_directory_that_came_to_the_name_is_left_alone(tmp_path: Path) -> None:
    """What is held was ours when it was opened; whose a name is now is asked again."""
    ours = Homes(str(tmp_path), Identity("ours"), held=HeldDirectories())
    ours.move_in("run", b'{"run_id": "run", "database": "ours"}', lambda said: False)
    ours.write(("run", "flow"), "a.json", b"a")
    shutil.rmtree(tmp_path / "run")
    theirs = Homes(str(tmp_path), Identity("theirs"))
    theirs.move_in("run", b'{"run_id": "run", "database": "theirs"}', lambda said: False)
    ours.write(("run", "flow"), "b.json", b"b")
    assert os.listdir(tmp_path / "run") == ["manifest.json"]
    assert (tmp_path / f"run.of-{ours.identity.short}" / "flow" / "b.json").read_bytes() == b"b"


def test_no_more_than_so_many_are_open_and_the_longest_unused_is_closed(tmp_path: Path) -> None:
    before = open_files()
    held = HeldDirectories(limit=4)
    folder = Folder(str(tmp_path), held=held)
    for name in ("a", "b", "c", "a", "d"):
        folder.write((name,), "file", b"")
    assert (len(held), open_files() - before) == (4, 4)
    folder.write(("b",), "other", b"1")  # which was closed
    assert folder.read(("b",), "other", limit=9) == b"1"
    folder.let_go((), below=True)
    assert open_files() == before


def test_what_is_let_go_is_closed_with_all_that_is_in_it(folder: Folder, held: HeldDirectories) -> None:
    folder.write(("run", "a"), "file", b"")
    folder.write(("runs",), "file", b"")
    folder.let_go(("run", "a"))
    assert len(held) == 3
    folder.let_go(("run",), below=True)
    assert len(held) == 2, "a longer name is another run's"


def test_threads_that_write_while_directories_are_let_go_lose_nothing(tmp_path: Path) -> None:
    """A descriptor in use is never closed, nor used for another directory."""
    folder = Folder(str(tmp_path), held=HeldDirectories(limit=3))

    def write(name: str) -> None:
        for number in range(60):
            folder.write((name,), f"{name}-{number}", name.encode())
            folder.let_go((name,))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "abcd":
        assert len(list((tmp_path / name).glob(f"{name}-*"))) == len(os.listdir(tmp_path / name)) == 60

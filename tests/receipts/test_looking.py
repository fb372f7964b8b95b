"""Looking at what a step changed: all that it did is seen, and nothing is followed, or looked at for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onward.receipts.folder import Folder, attempt_path
from onward.receipts.run_directory import (
    attempts_before,
    changed_since,
    files_named,
    files_of_attempt,
    last_with_something,
)

LONG_AGO_US = 0


def stamp_us(path: Path) -> int:
    """When the file system says that something last changed."""
    state = os.lstat(path)
    return max(state.st_mtime_ns, state.st_ctime_ns) // 1000


def later_us(*paths: Path) -> int:
    return max(map(stamp_us, paths)) + 1


def wait_for_the_next_tick(directory: Path, past_us: int) -> None:
    """Until the file system's clock has moved on."""
    probe = directory.parent / "probe"
    while True:
        probe.write_text("")
        if stamp_us(probe) > past_us:
            return


def names(root: Path, since_us: int) -> list[str]:
    return [file.path for file in changed_since(str(root), since_us).files]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work" / "deep" / "down").mkdir(parents=True)
    return tmp_path / "work"


def settle(root: Path) -> int:
    """A moment behind everything that is there, and before everything that comes."""
    since_us = later_us(root, *root.rglob("*"))
    wait_for_the_next_tick(root, since_us)
    return since_us


def test_what_changed_is_named_with_its_size_and_what_did_not_is_not(root: Path) -> None:
    (root / "old.txt").write_text("old")
    since_us = settle(root)
    (root / "deep" / "down" / "new.txt").write_text("12345")
    (found,) = changed_since(str(root), since_us).files
    assert (found.path, found.bytes) == ("deep/down/new.txt", 5)


def test_a_file_with_times_of_long_ago_is_seen(root: Path) -> None:
    """Unpacking an archive or copying with `-p` sets times back; when that was done cannot be set."""
    since_us = settle(root)
    (root / "unpacked").write_text("x")
    os.utime(root / "unpacked", (0, 0))
    assert names(root, since_us) == ["unpacked"]


def test_a_removed_file_is_seen_by_its_directory(root: Path) -> None:
    (root / "deep" / "gone.txt").write_text("x")
    since_us = settle(root)
    (root / "deep" / "gone.txt").unlink()
    assert names(root, since_us) == ["deep/"]


def test_a_new_empty_directory_is_seen(root: Path) -> None:
    since_us = settle(root)
    (root / "deep" / "fresh").mkdir()
    assert names(root, since_us) == ["deep/fresh/"]


def test_git_and_our_own_files_are_not_looked_at(root: Path) -> None:
    for name in (".git", ".onward", "my.db-runs"):
        (root / name).mkdir()
        (root / name / "file").write_text("x")
    (root / "my.db").write_text("x")
    (root / "step.txt").write_text("x")
    own = (str(root / "my.db"), str(root / "my.db-runs"))
    assert [file.path for file in changed_since(str(root), LONG_AGO_US, own=own).files] == [
        "deep/down/",
        "step.txt",
    ]


def test_a_link_is_named_and_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("x")
    since_us = settle(root)
    (root / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(root / "pipe")
    assert names(root, since_us) == ["link", "pipe"]
    seen = changed_since(str(root / "link"), LONG_AGO_US)
    assert (seen.files, len(seen.unseen)) == ((), 1)


def test_a_look_that_is_cut_short_says_so(root: Path) -> None:
    for number in range(20):
        (root / f"{number:02}").write_text("x")
    seen = changed_since(str(root), LONG_AGO_US, entries_max=10)
    assert len(seen.files) == 10
    assert seen.unseen == (f"{root} has more than 10 entries",)
    assert changed_since(str(root), LONG_AGO_US, entries_max=100).unseen == ()


def test_a_directory_that_is_gone_is_unseen_and_no_error(root: Path) -> None:
    (why,) = changed_since(str(root / "nowhere"), LONG_AGO_US).unseen
    assert why.endswith("No such file or directory")


def test_a_name_that_is_no_text_can_be_told(root: Path) -> None:
    since_us = settle(root)
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_text("x")
    assert names(root, since_us) == ["\ufffd\ufffd"]


def test_the_directory_of_a_try_does_not_count_what_later_ones_left(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    for attempt, again in ((1, 1), (1, 2), (2, 1)):
        folder.write(("run", *attempt_path("a#1", attempt, again)), f"of-{attempt}-{again}", b"x")
    folder.write(("run", *attempt_path("a#1", 1), "artifacts"), "plan.md", b"123")
    found = files_of_attempt(folder.path("run", *attempt_path("a#1", 1))).files
    assert [(file.path, file.bytes) for file in found] == [("artifacts/plan.md", 3), ("of-1-1", 1)]


def test_the_tries_before_are_found_from_the_newest_back(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    for attempt, again in ((1, 1), (1, 2), (3, 1), (3, 2)):
        folder.make(("run", *attempt_path("a#1", attempt, again)))
    found = list(attempts_before(folder, "run", "a#1", 3, 2))
    assert found == [attempt_path("a#1", 3), attempt_path("a#1", 1, 2), attempt_path("a#1", 1)]
    assert list(attempts_before(folder, "run", "a#1", 1, 1)) == []
    assert list(attempts_before(folder, "nobody", "a#1", 2, 1)) == []


def test_a_try_that_left_nothing_does_not_hide_one_that_did(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.write(("run", *attempt_path("a#1", 1)), "transcript.md", b"x")
    folder.write(("run", *attempt_path("a#1", 2)), "prompt.md", b"x")
    before = attempts_before(folder, "run", "a#1", 3, 1)
    assert last_with_something(folder, "run", before) == attempt_path("a#1", 1)
    (tmp_path / "run" / "a" / "1" / "transcript.md").unlink()
    before = attempts_before(folder, "run", "a#1", 3, 1)
    assert last_with_something(folder, "run", before) == attempt_path("a#1", 2)


def test_files_that_others_found_have_their_sizes_or_are_removed(root: Path) -> None:
    (root / "there").write_text("123")
    assert [(file.path, file.bytes) for file in files_named(str(root), ["gone", "there"])] == [
        ("gone", None),
        ("there", 3),
    ]

"""A directory that a step's program can write to as well: nothing leads out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onward.entry import InTheWay
from onward.receipts.folder import Folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere"
    path.mkdir()
    (path / "status.json").write_text("mine")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "runs"))


def test_a_file_is_written_whole_for_its_owner_alone(folder: Folder) -> None:
    assert folder.write(("run", "a", "1"), "status.json", b"one")
    folder.write(("run", "a", "1"), "status.json", b"two")
    path = Path(folder.path("run", "a", "1", "status.json"))
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["status.json"]
    assert [oct(p.stat().st_mode & 0o777) for p in (path, path.parent)] == ["0o600", "0o700"]


def test_what_is_there_stays_when_only_new_files_are_wanted(folder: Folder) -> None:
    folder.write(("run",), "prompt.md", b"really said")
    assert not folder.write(("run",), "prompt.md", b"made again", only_new=True)
    assert folder.read(("run",), "prompt.md", limit=100) == b"really said"


def test_a_new_directory_is_empty_and_an_old_one_is_kept_beside_it(folder: Folder) -> None:
    for number in (1, 2):
        folder.write(("run", "a", "1"), "status.json", str(number).encode())
        folder.make_new(("run", "a", "1"))
        assert folder.names(("run", "a", "1")) == []
    assert folder.read(("run", "a", "1.before-2"), "status.json", limit=9) == b"2"
    assert folder.read(("run", "a", "1.before-1"), "status.json", limit=9) == b"1"


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_link_in_the_way_is_refused(folder: Folder, elsewhere: Path, depth: int) -> None:
    """K23."""
    parts = ("run", "a", "1")
    link = Path(folder.path(*parts[:depth]))
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere, target_is_directory=True)
    for act in (
        lambda: folder.write(parts, "status.json", b"x"),
        lambda: folder.read(parts, "status.json", limit=9),
        lambda: folder.remove(parts, "status.json"),
        lambda: folder.make((*parts, "more")),
        lambda: list(folder.files(parts)),
    ):
        with pytest.raises(InTheWay, match="is not a directory \\(a link is not followed\\)"):
            act()
    assert {path.name: path.read_text() for path in elsewhere.iterdir()} == {"status.json": "mine"}


def test_a_link_as_a_file_is_replaced_and_never_written_or_read_through(
    folder: Folder, elsewhere: Path
) -> None:
    folder.make(("run",))
    for name in ("status.json", f".status.json.{os.getpid()}.part"):
        Path(folder.path("run", name)).symlink_to(elsewhere / "status.json")
    with pytest.raises(InTheWay, match="is not a plain file"):
        folder.read(("run",), "status.json", limit=9)
    folder.write(("run",), "status.json", b"ours")
    assert folder.read(("run",), "status.json", limit=9) == b"ours"
    assert (elsewhere / "status.json").read_text() == "mine"


def test_a_pipe_makes_nobody_wait(folder: Folder) -> None:
    folder.make(("run",))
    os.mkfifo(folder.path("run", "status.json"))
    with pytest.raises(InTheWay, match="is not a plain file"):
        folder.read(("run",), "status.json", limit=9)
    with pytest.raises(InTheWay):
        list(folder.files(("run",)))


def test_a_file_is_read_no_further_than_allowed(folder: Folder) -> None:
    folder.write((), "large", b"x" * 100)
    assert folder.read((), "large", limit=10) == b"x" * 11
    assert folder.read((), "absent", limit=10) is None


def test_files_are_found_however_deep_they_lie(folder: Folder) -> None:
    folder.write(("a", "artifacts"), "top", b"")
    folder.write(("a", "artifacts", "b", "c"), "low", b"")
    assert list(folder.files(("a", "artifacts"))) == [
        ("a", "artifacts", "b", "c", "low"),
        ("a", "artifacts", "top"),
    ]
    assert list(folder.files(("absent",))) == []


def test_a_file_that_could_not_be_written_leaves_nothing_behind(folder: Folder) -> None:
    Path(folder.path()).mkdir()
    Path(folder.path("status.json")).mkdir()
    with pytest.raises(IsADirectoryError):
        folder.write((), "status.json", b"x")
    assert folder.names(()) == ["status.json"]


def test_what_is_synced_is_on_the_disk_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the content, then the name."""
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = Folder(str(tmp_path))
    folder.write(("a",), "one", b"1")
    assert synced == []
    folder.write(("a",), "two", b"2", synced=True)
    assert synced == [f".two.{os.getpid()}.part", "a"]
    assert (tmp_path / "a" / "two").read_bytes() == b"2"

"""A database file that is deleted or replaced while it is open: noticed before anything is acknowledged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onward.errors import StoreGone
from onward.store.sqlite.adapter import SqliteStore
from onward.store.sqlite.transaction import File
from tests.conformance.drafts import created, held, log_of, stepped

pytestmark = pytest.mark.anyio
SIDES = ("", "-wal", "-shm")


def delete(path: Path) -> None:
    for side in SIDES:
        os.unlink(f"{path}{side}")


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    other.write_bytes(b"")
    os.replace(other, path)


def delete_log(path: Path) -> None:
    os.unlink(f"{path}-wal")


def delete_index(path: Path) -> None:
    os.unlink(f"{path}-shm")


def replace_log(path: Path) -> None:
    shutil.copy(f"{path}-wal", f"{path}-copy")
    os.replace(f"{path}-copy", f"{path}-wal")


def rename_log(path: Path) -> None:
    os.rename(f"{path}-wal", f"{path}-old")


def replace_index(path: Path) -> None:
    shutil.copy(f"{path}-shm", f"{path}-copy")
    os.replace(f"{path}-copy", f"{path}-shm")


def take_away(path: Path) -> None:
    shutil.move(path.parent, path.parent.with_name("away"))


WAYS = (
    delete,
    replace,
    take_away,
    delete_log,
    replace_log,
    rename_log,
    delete_index,
    replace_index,
)


@pytest.mark.parametrize("vanish", WAYS)
async def test_a_write_is_not_acknowledged_and_a_heartbeat_notices(
    tmp_path: Path, vanish: Callable[[Path], None]
) -> None:
    path = tmp_path / "place" / "onward.db"
    store = SqliteStore(str(path))
    run = await held(store)
    vanish(path)
    with pytest.raises(
        StoreGone, match=r"onward\.db(-wal|-shm)? was deleted or replaced while it was in use"
    ):
        await stepped(store, run)
    with pytest.raises(StoreGone):
        await store.leases.renew([run.lease])
    with pytest.raises(StoreGone):
        await created(store)
    await store.close()


async def test_another_current_directory_is_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("onward.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    await created(store)
    await store.close()


async def test_closing_a_file_that_is_gone_takes_nothing_from_the_one_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    old = SqliteStore(str(path))
    await created(old)
    delete(path)
    new = SqliteStore(str(path))
    run = await created(new)
    await old.close()
    assert sorted(os.listdir(tmp_path)) == sorted(f"onward.db{side}" for side in SIDES)
    third = SqliteStore(str(path))
    assert await log_of(third, run.id)
    await third.close()
    await new.close()


def test_the_number_of_a_file_is_the_one_that_the_system_tells(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    found = os.stat(path)
    assert File(str(path)).number() == (found.st_ino, os.major(found.st_dev), os.minor(found.st_dev))

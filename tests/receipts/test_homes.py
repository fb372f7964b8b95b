"""Directories of runs in a folder that several databases use: each finds its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onward.model.ids import Identity
from onward.receipts.run_directory import Homes

OURS, THEIRS = Identity("ours"), Identity("theirs")


def manifest(database: str | None = "ours", start_time: str = "2020") -> bytes:
    said = {"run_id": "run", "start_time": start_time}
    return json.dumps(said if database is None else {**said, "database": database}).encode()


def test_what_nobody_has_is_had_under_the_runs_id(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".manifest.json.7.part").write_text("{")  # somebody died who had just begun
    homes = Homes(str(tmp_path), OURS)
    assert homes.home("run") == "run"
    homes.move_in("run", manifest(), lambda said: False)
    assert homes.path("run", "a") == str(tmp_path / "run" / "a")
    assert homes.is_ours("run")


@pytest.mark.parametrize("is_there", [False, True])
def test_of_two_who_move_in_at_once_the_second_has_a_name_of_its_own(tmp_path: Path, is_there: bool) -> None:
    """Also into a directory that somebody left empty."""

    class Overtaken(Homes):
        """Another database comes between looking and writing."""

        def _is_made(self, run_id: str) -> bool:
            return self._overtaken(run_id, Homes._is_made(self, run_id))

        def _is_free(self, name: str) -> bool:
            return self._overtaken(name, Homes._is_free(self, name))

        def _overtaken(self, name: str, found: bool) -> bool:
            if found:
                Homes(self.root, THEIRS).plain.write_new((name,), "manifest.json", manifest("theirs"))
            return found

    if is_there:
        (tmp_path / "run").mkdir()
    ours = Overtaken(str(tmp_path), OURS)
    ours.move_in("run", manifest(), lambda said: False)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["database"] == "theirs"
    assert ours.home("run") == f"run.of-{OURS.short}"


def test_an_earlier_run_of_the_same_id_and_database_is_put_aside(tmp_path: Path) -> None:
    homes = Homes(str(tmp_path), OURS)
    homes.move_in("run", manifest(start_time="2020"), lambda said: False)
    homes.write(("run",), "old", b"")
    homes.move_in("run", manifest(start_time="2021"), lambda said: said["start_time"] == "2021")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.before-1"]
    assert homes.names(("run",)) == ["manifest.json"]
    assert homes.is_ours("run.before-1")


def test_without_a_mark_a_directory_is_ours_if_it_is_as_old_as_our_oldest_runs(tmp_path: Path) -> None:
    year_2020 = 1_577_836_800_000_000
    homes = Homes(str(tmp_path), Identity("ours", year_2020))
    for start_time, is_ours in (
        ("2019-12-31T00:00:00.000000Z", True),
        ("2020-01-02T00:00:00.000000Z", False),
    ):
        homes.plain.write(("run",), "manifest.json", manifest(None, start_time))
        assert homes.is_ours("run") is is_ours
    assert not Homes(str(tmp_path), OURS).is_ours("run")


def test_an_unmarked_directory_of_another_time_is_nobodys(tmp_path: Path) -> None:
    homes = Homes(str(tmp_path), Identity("ours", 2**51))
    homes.plain.write(("run",), "manifest.json", manifest(None))
    homes.move_in("run", manifest(start_time="2021"), lambda said: said["start_time"] == "2021")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["start_time"] == "2020"
    assert homes.home("run") == f"run.of-{homes.identity.short}"

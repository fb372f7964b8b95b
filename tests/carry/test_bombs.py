"""Small files that would become very large ones: refused on the way, with nothing left of them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from onward.carry.format import CHUNK, LINE_BYTES_MAX, Spool, UnpackLimits
from onward.carry.importer import CheckedExport
from onward.errors import Refused
from tests.carry.test_hostile_files import forged
from tests.cli.shell import Shell

MIB = 1024 * 1024
SMALL = UnpackLimits(free=2 * MIB, ratio=10, line=MIB)


class Counted(io.RawIOBase):
    """Zeros or lines without an end, of which it is known how many were read."""

    def __init__(self, content: bytes) -> None:
        self.content, self.count = content, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        self.count += len(self.content)
        return self.content


def packed(content: bytes, times: int = 1) -> bytes:
    target = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(target, closefd=False) as writer:
        for _ in range(times):
            writer.write(content)
    return target.getvalue()


def spooled(content: bytes, limits: UnpackLimits = SMALL) -> Spool:
    return Spool(io.BytesIO(content), "the file", limits)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for temporary files, which is empty at the end of every test here."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    assert os.listdir(place) == []


def test_a_file_that_unpacks_to_far_more_than_it_is_large_is_refused() -> None:
    bomb = packed(b"\n" * MIB, times=64)
    assert len(bomb) * SMALL.ratio < SMALL.free
    with pytest.raises(Refused, match=r"unpacks to more than 2,097,152 bytes out of .* nothing was imported"):
        spooled(bomb)


def test_what_does_not_compress_is_never_refused() -> None:
    spool = spooled(packed(b"".join(os.urandom(64).hex().encode() + b"\n" for _ in range(30_000))))
    assert sum(len(line) for _, line in spool.lines()) > SMALL.free
    spool.close()


def test_content_that_is_all_alike_is_free_up_to_a_size() -> None:
    spool = spooled(packed(b"\n" * MIB, times=2))
    assert sum(1 for _ in spool.lines()) == 2 * MIB
    spool.close()


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_line_without_an_end_is_refused(is_packed: bool) -> None:
    line = b"0" * (SMALL.line + CHUNK)
    with pytest.raises(Refused, match="has a line of more than 1,048,576 bytes; nothing was imported"):
        spooled(packed(line) if is_packed else line)


def test_an_endless_input_is_read_no_further_than_a_line_may_be_long() -> None:
    zeros = Counted(b"0" * CHUNK)
    with pytest.raises(Refused, match="has a line of more than"):
        Spool(zeros, "the input", SMALL)  # type: ignore[arg-type]
    assert zeros.count <= SMALL.line + 3 * CHUNK


def test_a_disk_without_room_for_the_copy_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: open("/dev/full", "r+b"))  # noqa: SIM115
    with pytest.raises(Refused, match=r"cannot be copied into .*: No space left on device; name another"):
        spooled(b"1\n")


def test_an_export_is_taken_in_by_the_limits_that_hold_without_a_flag() -> None:
    spool = Spool(io.BytesIO(packed(forged())), "the file")
    assert [row.id for row in CheckedExport(spool).rows] == ["run"]
    spool.close()
    assert UnpackLimits().line == LINE_BYTES_MAX


def test_a_file_that_a_person_trusts_may_unpack_to_more(tmp_path: Path) -> None:
    shell = Shell(tmp_path, str(tmp_path / "onward.db"))
    (tmp_path / "file.zst").write_bytes(packed(forged()))
    assert shell.inside("import", "file.zst", "--unpacked-max", "0").code == 2
    assert shell.inside("import", "file.zst", "--unpacked-max", "1").code == 0

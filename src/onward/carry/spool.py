"""An export on its way in: copied to a file of our own first, so that what was checked is what is written."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, cast

import zstandard

from onward.errors import Refused

ZSTD = b"\x28\xb5\x2f\xfd"
# An artifact of the largest size that there can be, as text, with much room.
LINE_BYTES_MAX = 256 * 1024 * 1024


def unreadable(name: str, why: str) -> Refused:
    """One sentence about a file that cannot be taken in."""
    return Refused("export_unreadable", f"{name} {why}; nothing was imported.", details={"file": name})


class Spool:
    """The plain lines of an export. Compressed or not is seen by its first bytes."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        self.name = name
        self.why_nothing = "is empty"
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="onward-import-")  # noqa: SIM115
        try:
            self._fill(source)
        except BaseException:
            self._file.close()
            raise

    def _fill(self, source: BinaryIO) -> None:
        head = source.read(len(ZSTD))
        if head == ZSTD:
            self.why_nothing = "is cut off: it ends before its first line"
            self._unpack(_Behind(head, source))
        else:
            self._file.write(head)
            _copy(source, self._file)
        self._file.flush()

    def _unpack(self, source: _Behind) -> None:
        try:
            with zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, source)) as plain:
                _copy(plain, self._file)
        except zstandard.ZstdError:
            raise unreadable(self.name, "is damaged: it does not decompress") from None

    def lines(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Every line from one place to another, with the place where it begins."""
        while end is None or start < end:
            self._file.seek(start)
            line = self._file.readline(LINE_BYTES_MAX)
            if not line:
                return
            yield start, line
            start += len(line)

    def close(self) -> None:
        self._file.close()


class _Behind(io.RawIOBase):
    """What was read already, and then what comes behind it."""

    def __init__(self, head: bytes, source: BinaryIO) -> None:
        self._head, self._source = head, source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        return head or self._source.read(size)


def _copy(source: BinaryIO | zstandard.ZstdDecompressionReader, target: BinaryIO) -> None:
    while chunk := source.read(1024 * 1024):
        target.write(chunk)

"""An export on its way in: copied to a file of our own first, so that what was checked is what is written."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

import zstandard

from onward.errors import Refused

ZSTD = b"\x28\xb5\x2f\xfd"
# An artifact of the largest size that there can be, as text, with much room.
LINE_BYTES_MAX = 256 * 1024 * 1024
CHUNK = 1024 * 1024
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a file may unpack to: `free` bytes, and beyond that so many times what was read of it.

    Every event has a hash of its own, which does not compress, so logs come nowhere near the ratio; artifacts
    that are all alike may, and are free up to a size.
    """

    free: int = GIB
    ratio: int = 1_000
    line: int = LINE_BYTES_MAX

    def unpacked(self, packed: int) -> int:
        return max(self.free, packed * self.ratio)


def unreadable(name: str, why: str) -> Refused:
    """One sentence about a file that cannot be taken in."""
    return Refused("export_unreadable", f"{name} {why}; nothing was imported.", details={"file": name})


class Spool:
    """The plain lines of an export. Compressed or not is seen by its first bytes."""

    def __init__(self, source: BinaryIO, name: str, limits: Limits | None = None) -> None:
        self.name, self._limits = name, limits or Limits()
        self.why_nothing = "is empty"
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="onward-import-")  # noqa: SIM115
        try:
            self._fill(source)
        except BaseException:
            with contextlib.suppress(OSError):  # a full disk, again; it was told already
                self._file.close()
            raise

    def _fill(self, source: BinaryIO) -> None:
        head = source.read(len(ZSTD))
        if head == ZSTD:
            self.why_nothing = "is truncated: it ends before its first line"
            self._unpack(_Behind(head, source))
        else:
            self._copy(_Behind(head, source))

    def _unpack(self, source: _Behind) -> None:
        try:
            with zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, source)) as plain:
                self._copy(plain, source)
        except zstandard.ZstdError:
            raise unreadable(self.name, "is damaged: it does not decompress") from None

    def _copy(
        self, source: _Behind | zstandard.ZstdDecompressionReader, packed: _Behind | None = None
    ) -> None:
        """Copy what comes, and stop where no export would continue."""
        total = line = 0
        while chunk := source.read(CHUNK):
            total += len(chunk)
            end = chunk.rfind(b"\n")
            line = line + len(chunk) if end < 0 else len(chunk) - end - 1
            if line > self._limits.line:
                raise unreadable(self.name, f"has a line of more than {self._limits.line:,} bytes")
            if packed is not None and total > self._limits.unpacked(packed.count):
                raise unreadable(
                    self.name,
                    f"unpacks to more than {self._limits.unpacked(packed.count):,} bytes out of "
                    f"{packed.count:,}, which no export should: pass --unpacked-max GIB if you trust it",
                )
            self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        try:
            self._file.write(chunk)
            self._file.flush()
        except OSError as error:
            why = f"cannot be copied into {tempfile.gettempdir()} to be checked: {error.strerror}"
            raise unreadable(self.name, f"{why}; name another directory with TMPDIR") from error

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
    """What was already read, then the rest."""

    def __init__(self, head: bytes, source: BinaryIO) -> None:
        self._head, self._source = head, source
        self.count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        found = head or self._source.read(size)
        self.count += len(found)
        return found

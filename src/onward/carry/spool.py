"""A private copy of an export that is being imported, so that what was checked is what is written."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, cast

import msgspec
import zstandard

from onward.errors import Refused

ZSTD = b"\x28\xb5\x2f\xfd"
# Enough for the largest possible artifact, as text.
LINE_BYTES_MAX = 256 * 1024 * 1024
CHUNK = 1024 * 1024
GIB = 1024**3


class Limits(msgspec.Struct, frozen=True):
    """How much a file may unpack to: `free` bytes, or `ratio` times what was read, if that is more.

    Every event has a hash, which does not compress, so logs never reach the ratio; artifacts that are all
    alike may.
    """

    free: int = GIB
    ratio: int = 1_000
    line: int = LINE_BYTES_MAX

    def unpacked(self, packed: int) -> int:
        return max(self.free, packed * self.ratio)


def unreadable(name: str, why: str) -> Refused:
    """One sentence about a file that cannot be imported."""
    return Refused("export_unreadable", f"{name} {why}; nothing was imported.", details={"file": name})


class Spool:
    """The plain lines of an export. Its first bytes show whether it is compressed."""

    def __init__(self, source: BinaryIO, name: str, limits: Limits | None = None) -> None:
        self.name, self._limits = name, limits or Limits()
        self.why_nothing = "is empty"
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="onward-import-")  # noqa: SIM115
        try:
            self._fill(source)
        except BaseException:
            with contextlib.suppress(OSError):  # a full disk, which was already reported
                self._file.close()
            raise

    def _fill(self, source: BinaryIO) -> None:
        head = source.read(len(ZSTD))
        if head == ZSTD:
            self.why_nothing = "is truncated: it ends before its first line"
            self._unpack(_Rejoined(head, source))
        else:
            self._copy(_Rejoined(head, source))

    def _unpack(self, source: _Rejoined) -> None:
        try:
            with zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, source)) as plain:
                self._copy(plain, source)
        except zstandard.ZstdError:
            raise unreadable(self.name, "is damaged: it does not decompress") from None

    def _copy(
        self, source: _Rejoined | zstandard.ZstdDecompressionReader, packed: _Rejoined | None = None
    ) -> None:
        """Copy the input, and refuse it as soon as it exceeds a limit."""
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
        """Every line from one offset to another, with the offset where it begins."""
        while end is None or start < end:
            self._file.seek(start)
            line = self._file.readline(LINE_BYTES_MAX)
            if not line:
                return
            yield start, line
            start += len(line)

    def close(self) -> None:
        self._file.close()


class _Rejoined(io.RawIOBase):
    """The bytes that were already read, then the rest."""

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

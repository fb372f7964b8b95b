"""What one try of a step printed, read bit by bit."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from typing import Literal

from onward.model.attempt.output import STDERR, STDOUT, LastOutput
from onward.receipts.entry import closing
from onward.receipts.folder import Folder
from onward.receipts.names import OUTPUT_ENDING, Path

CHUNK_BYTES = 1 << 16
STREAMS = (STDOUT, STDERR)
Source = Literal["file", "log", "context"]
Text = tuple[str, str, Source]
"""The stream, what it printed, and where that was kept."""


class PrintedTry:
    """Reads the files of one try as they grow; without files, what the log has of it when it has ended.

    `streams` are those that are wanted; if there are none, all are, with the traceback and the lines that the
    handler logged (`log`). `printed` is the standard output that became a context value.
    """

    def __init__(self, runs: Folder | None, parts: Path, streams: Sequence[str]) -> None:
        self._runs, self._parts, self._streams = runs, parts, streams
        self._decoders = {
            stream: codecs.getincrementaldecoder("utf-8")(errors="replace") for stream in STREAMS
        }
        self._read_upto = dict.fromkeys(STREAMS, 0)
        self._has_files = self._is_done = False
        self.log: Sequence[str] = ()
        self.printed = ""

    def more(self, output: LastOutput | None, *, is_ended: bool) -> Iterator[Text]:
        """What came since this was last asked; `output` is what the log has of it."""
        if self._is_done:
            return
        for stream in STREAMS:
            for text in self._from_file(stream, is_ended):
                if self._is_wanted(stream):
                    yield stream, text, "file"
        if is_ended:
            self._is_done = True
            yield from self._from_log(output)

    def _is_wanted(self, stream: str) -> bool:
        return not self._streams or stream in self._streams

    def _from_file(self, stream: str, is_ended: bool) -> Iterator[str]:
        decode = self._decoders[stream].decode
        for data in self._new_bytes(stream):
            self._has_files = True
            if text := decode(data):
                yield text
        if is_ended and (text := decode(b"", final=True)):
            yield text

    def _new_bytes(self, stream: str) -> Iterator[bytes]:
        if self._runs is None:
            return
        try:
            file = self._runs.open_plain(self._parts, stream + OUTPUT_ENDING)
        except OSError:  # something else is in the way, and is not followed; the log still has the last lines
            return
        if file is None:
            return
        with closing(file):
            while data := os.pread(file, CHUNK_BYTES, self._read_upto[stream]):
                self._read_upto[stream] += len(data)
                yield data

    def _from_log(self, output: LastOutput | None) -> Iterator[Text]:
        if not self._has_files:
            yield from self._last_lines(output)
        if self._streams:
            return
        for line in self.log:
            yield "log", f"{line}\n", "log"
        if output is not None and output.traceback:
            yield "traceback", f"{output.traceback}\n", "log"

    def _last_lines(self, output: LastOutput | None) -> Iterator[Text]:
        if output is None or not output.lines:
            if self.printed and self._is_wanted(STDOUT):
                yield STDOUT, self.printed, "context"
            return
        for line in output.lines:
            if self._is_wanted(line.stream):
                yield line.stream, f"{line.text}\n", "log"

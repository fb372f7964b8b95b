"""Runs in a file of JSON lines: one object for each, checked before anything is created."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import msgspec

from onward.cli.times import read_time
from onward.errors import InvalidInput, RefusedInList
from onward.operations.requests import SubmitRun

STANDARD_INPUT = "-"
FILE_BYTES_MAX = 64 * 1024 * 1024


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is a run's own; the command line says the rest."""

    inputs: dict[str, Any] = {}
    run_id: str | None = None
    key: str | None = None
    tags: tuple[str, ...] = ()
    priority: int | None = None
    at: str | None = None
    chat: str | None = None
    project: str | None = None


_DECODER = msgspec.json.Decoder(_Line)


class Many(msgspec.Struct, frozen=True):
    """The runs of a file, and the line that each stands in."""

    name: str
    runs: tuple[SubmitRun, ...]
    lines: tuple[int, ...]

    @contextmanager
    def located(self) -> Iterator[None]:
        """Say of a run that is refused in which line it stands."""
        try:
            yield
        except RefusedInList as error:
            raise InvalidInput(error.told(f"{self.name} line {self.lines[error.number]}")) from error


def read_many(path: str, common: SubmitRun, *, now_us: int) -> Many:
    """The runs of a file of JSON lines, or of standard input; `common` is what all have."""
    name = "standard input" if path == STANDARD_INPUT else path
    runs: list[SubmitRun] = []
    lines: list[int] = []
    for number, text in enumerate(_read(path).split(b"\n"), 1):
        if text.strip():
            runs.append(_run(text, common, f"{name} line {number}", now_us))
            lines.append(number)
    if not runs:
        raise InvalidInput(f'{name} has no runs; write one object per line, such as {{"inputs": {{}}}}.')
    return Many(name, tuple(runs), tuple(lines))


def _run(text: bytes, common: SubmitRun, where: str, now_us: int) -> SubmitRun:
    try:
        line = _DECODER.decode(text)
        at_us = common.wake_at_us if line.at is None else read_time(line.at, "at", now_us=now_us)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidInput) as error:
        raise InvalidInput(f"{where}: {str(error).rstrip('.')}; nothing was created.") from None
    return msgspec.structs.replace(
        common,
        inputs={**common.inputs, **line.inputs},
        run_id=line.run_id,
        key=line.key,
        tags=(*common.tags, *line.tags),
        priority=common.priority if line.priority is None else line.priority,
        wake_at_us=at_us,
        chat=common.chat if line.chat is None else line.chat,
        project=common.project if line.project is None else line.project,
    )


def _read(path: str) -> bytes:
    if path == STANDARD_INPUT:
        return _within(sys.stdin.buffer, "standard input")
    try:
        with open(path, "rb") as file:
            return _within(file, path)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}.") from None


def _within(file: BinaryIO, name: str) -> bytes:
    content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise InvalidInput(f"{name} is larger than {FILE_BYTES_MAX:,} bytes; submit it in parts.")
    return content

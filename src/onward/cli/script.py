"""The simulation script that `--simulate` names: read, checked, and known by its lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import msgspec

from onward.errors import InvalidInput, InvalidScript

BYTES_MAX = 8 * 1024 * 1024
_SPACE = re.compile(r"[\s,:]*")
_DECODER = json.JSONDecoder()


class Script(msgspec.Struct, frozen=True):
    """What `--simulate` asks for. `entries`: None without it, empty if every step succeeds."""

    entries: dict[str, Any] | None = None
    name: str = ""
    text: str = ""
    real_tools: bool = False

    @contextmanager
    def located(self) -> Iterator[None]:
        """What is wrong with an entry is said with the script's name and line."""
        try:
            yield
        except InvalidScript as error:
            if not self.name:
                raise
            where = f"{self.name}:{line_of(self.text, error.place)}"
            raise InvalidScript(error.place, error.reason, where=where) from None


def script_of(simulate: str | None, *, real_tools: bool = False) -> Script:
    """The simulation that `--simulate [SCRIPT.json]` and `--real-tools` ask for."""
    if simulate is None:
        if real_tools:
            raise InvalidInput("--real-tools goes with --simulate; without it everything is real.")
        return Script()
    if not simulate:
        return Script({}, real_tools=real_tools)
    from onward.handlers.simulate import check_script

    text = _read(simulate)
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except InvalidInput as error:
        raise InvalidInput(f"the simulation script {simulate} {error}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the simulation script {simulate} is not JSON: {error}.") from None
    script = Script({}, simulate, text, real_tools)
    with script.located():
        try:
            return Script(check_script(found), simulate, text, real_tools)
        except InvalidScript:
            raise
        except InvalidInput as error:
            raise InvalidInput(f"{simulate} is not a simulation script: {error}.") from None


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise InvalidInput(f"cannot read the simulation script {path}: {error.strerror}.") from None
    if len(content) > BYTES_MAX:
        raise InvalidInput(f"the simulation script {path} is larger than {BYTES_MAX:,} bytes.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"the simulation script {path} is not UTF-8 at byte {error.start}; save it as UTF-8."
        ) from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object as JSON has it, but not with a name twice: one of the two would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"has {twice!r} twice")
    return found


def line_of(text: str, place: Sequence[str | int]) -> int:
    """The line of a value in a JSON text; a name leads into an object, a number into a list."""
    at = line_at = _skip(text, 0)
    for part in place:
        at = _skip(text, at + 1)
        for number in range(len(text)):
            line_at = at
            name, at = scanstring(text, at + 1) if isinstance(part, str) else (number, at)
            at = _skip(text, at)
            if name == part:
                break
            at = _skip(text, _DECODER.raw_decode(text, at)[1])
    return text.count("\n", 0, line_at) + 1


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at

"""What is redacted, as the user says it: `[redact]` of the settings' file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from onward.errors import InvalidInput

KNOWN = ("env", "files", "off", "patterns", "well_known")


class RedactSettings(msgspec.Struct, frozen=True):
    """Variables and files whose values are secrets, patterns of the user's own, and what is switched off."""

    env: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()
    well_known: bool = True
    off: bool = False


DEFAULT_REDACT = RedactSettings()


def read_redact(table: object, *, file: str, path: Callable[[str], str]) -> RedactSettings:
    """The table of a file; `path` says what its paths mean."""
    if not isinstance(table, dict):
        raise InvalidInput(f"redact in {file} is {table!r}; write a table [redact].")
    where = f"[redact] in {file}"
    unknown = sorted(table.keys() - set(KNOWN))
    if unknown:
        raise InvalidInput(f"{where} sets {', '.join(unknown)}; known settings are {', '.join(KNOWN)}.")
    for name in ("well_known", "off"):
        if not isinstance(table.get(name, False), bool):
            raise InvalidInput(f"{name} of {where} is {table[name]!r}; write true or false.")
    return RedactSettings(
        env=_texts(where, "env", table),
        files=tuple(path(name) for name in _texts(where, "files", table)),
        patterns=tuple(_pattern(where, pattern) for pattern in _texts(where, "patterns", table)),
        well_known=table.get("well_known", True),
        off=table.get("off", False),
    )


def _texts(where: str, name: str, table: Mapping[str, object]) -> tuple[str, ...]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise InvalidInput(f"{name} of {where} is {found!r}; write a list of texts.")
    return tuple(found)


def _pattern(where: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidInput(f"the pattern {pattern!r} of {where} is no regular expression: {error}.") from None

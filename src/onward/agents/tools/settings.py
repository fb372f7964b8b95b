"""What a project says about tools: `[tools.NAME]`, and `[tools.http]` for where requests may go."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onward.agents.tools.web.addresses import Allowed, read_allowed
from onward.errors import InvalidInput
from onward.model.values import Seconds, Whole, shown

HTTP = "http"
TIME_LIMIT = Seconds(0.1)
OUTPUT = Whole(1_000, 10_000_000)
_NAME = re.compile(r"[A-Za-z0-9_*?-][A-Za-z0-9_.*?-]{0,127}")


class ToolSettings(msgspec.Struct, frozen=True):
    """What is changed in the rules of tools, by their names or patterns, and where requests may go."""

    changed: Mapping[str, Mapping[str, object]] = msgspec.field(default_factory=dict)
    allowed: tuple[Allowed, ...] = ()
    allows_private: bool = False


def read_tools(tables: Mapping[str, Any], *, where: str = "onward.toml") -> ToolSettings:
    """The settings of `[tools]`; InvalidInput for the first that cannot be used."""
    changed: dict[str, Mapping[str, object]] = {}
    http: Mapping[str, Any] = {}
    for name, table in tables.items():
        place = f"[tools.{name}] in {where}"
        if not isinstance(table, dict):
            raise InvalidInput(f"tools.{name} in {where} is {shown(table)}; write a table [tools.{name}].")
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f'{place} cannot be the name of a tool; use letters, digits, _ and -, or * as in "github__*".'
            )
        if name == HTTP:
            http = _read(table, place, HTTP_READERS)
        else:
            changed[name] = _read(table, place, READERS)
    return ToolSettings(changed, http.get("allow", ()), http.get("allow_private", False))


def _read(
    table: Mapping[str, Any], place: str, readers: Mapping[str, Callable[[object, str], Any]]
) -> Mapping[str, Any]:
    if unknown := sorted(table.keys() - readers.keys()):
        hint = ""
        if readers is HTTP_READERS and set(unknown) <= READERS.keys():
            hint = " The rules of its tools belong in [tools.http_get] and [tools.http_send]."
        raise InvalidInput(
            f"{place} sets {', '.join(unknown)}; known settings are {', '.join(sorted(readers))}.{hint}"
        )
    return {key: readers[key](value, f"{key} of {place}") for key, value in table.items()}


def _switch(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} is {shown(value)}; write true or false.")
    return value


def _allow(value: object, what: str) -> tuple[Allowed, ...]:
    if not isinstance(value, list):
        raise InvalidInput(f'{what} is {shown(value)}; write a list such as ["api.example.com"].')
    return tuple(read_allowed(entry, what) for entry in value)


READERS: Mapping[str, Callable[[object, str], Any]] = {
    "approval": _switch,
    "repeatable": _switch,
    "time_limit_s": TIME_LIMIT.check,
    "output_characters": OUTPUT.check,
}
"""The settings of `[tools.NAME]`: the fields of ToolRules."""
HTTP_READERS: Mapping[str, Callable[[object, str], Any]] = {"allow": _allow, "allow_private": _switch}
"""The settings of `[tools.http]`."""

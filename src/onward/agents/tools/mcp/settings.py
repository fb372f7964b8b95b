"""The servers of `[mcp.NAME]`; a setting that cannot be used is refused in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onward.agents.providers import read_address, read_headers
from onward.agents.tools.port import TIME_LIMIT_S
from onward.errors import InvalidInput
from onward.model.values import Seconds, shown

_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]|_(?!_)){0,29}")
_VARIABLE = re.compile(r"[^\s=,$\[\]]+")
_OURS = re.compile("mcp-.*", re.IGNORECASE)
_TIME = Seconds(0.1)


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server: a program of ours that is talked to through its standard input and output, or an address."""

    name: str
    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """Names and patterns of the variables that the program gets besides the usual ones."""
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = {}
    """Values may be references to keys."""
    time_limit_s: float = TIME_LIMIT_S
    """How long it may take to start, to list its tools, and for one use."""
    tools: tuple[str, ...] = ("*",)
    """Which of its tools are offered: names and patterns."""
    trust_hints: bool = False
    """Whether what it says about its tools may spare approvals and make uses repeatable."""

    def __repr__(self) -> str:
        return f"McpServer({self.name})"

    @property
    def prefix(self) -> str:
        """What the names of its tools begin with."""
        return f"{self.name}__"


def read_servers(tables: Mapping[str, Any], where: str = "onward.toml") -> Mapping[str, McpServer]:
    """The servers by name; InvalidInput for the first bad setting."""
    found = {}
    for name, table in tables.items():
        place = f"[mcp.{name}] in {where}"
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"{place} has an invalid name; use up to 30 letters, digits, - and single _, beginning with "
                "a letter."
            )
        if not isinstance(table, dict):
            raise InvalidInput(f"mcp.{name} in {where} is {shown(table)}; write a table [mcp.{name}].")
        found[name] = _server(name, table, place)
    return found


def _server(name: str, table: Mapping[str, Any], place: str) -> McpServer:
    if unknown := sorted(table.keys() - READERS.keys()):
        known = ", ".join(sorted(READERS))
        raise InvalidInput(f"{place} sets {', '.join(unknown)}; known settings are {known}.")
    if ("command" in table) == ("url" in table):
        raise InvalidInput(
            f'{place} needs either a command or a url; write command = "…" or url = "https://…".'
        )
    other = {"headers"} if "command" in table else {"env", "cwd"}
    if wrong := sorted(table.keys() & other):
        kind = "a command" if "command" in table else "a url"
        raise InvalidInput(f"{place} sets {', '.join(wrong)}, which a server with {kind} does not have.")
    read = {key: READERS[key](value, f"{key} of {place}") for key, value in table.items()}
    return McpServer(name=name, **read)


def _command(value: object, what: str) -> tuple[str, ...]:
    """A line for a shell, or the words of a program."""
    if isinstance(value, str) and value.strip():
        return ("sh", "-c", value)
    if (
        isinstance(value, list)
        and value
        and all(isinstance(word, str) and "\0" not in word for word in value)
    ):
        return tuple(value)
    raise InvalidInput(f'{what} is {shown(value)}; write a line, or words such as ["my-server", "--stdio"].')


def _names(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise InvalidInput(f'{what} is {shown(value)}; write a list of names and patterns, as in ["read_*"].')
    return tuple(value)


def _variables(value: object, what: str) -> tuple[str, ...]:
    for name in (names := _names(value, what)):
        if not _VARIABLE.fullmatch(name):
            raise InvalidInput(
                f"{what} has {shown(name)}, which is not a variable name; write a name, or AWS_*."
            )
    return names


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidInput(f"{what} is {shown(value)}; write text in quotes.")
    return value


def _headers(value: object, what: str) -> Mapping[str, str]:
    headers = read_headers(value, what)
    for name in headers:
        if _OURS.fullmatch(name):
            raise InvalidInput(f"{what} sets {name}, which Onward sets itself; leave it out.")
    return headers


def _switch(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} is {shown(value)}; write true or false.")
    return value


READERS: Mapping[str, Callable[[object, str], Any]] = {
    "command": _command,
    "env": _variables,
    "cwd": _text,
    "url": read_address,
    "headers": _headers,
    "time_limit_s": _TIME.check,
    "tools": _names,
    "trust_hints": _switch,
}
"""The settings of `[mcp.NAME]`."""

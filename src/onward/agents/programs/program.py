"""Which programs there are: three that are known by name, and those that `[programs.NAME]` describes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from onward.errors import InvalidInput
from onward.model.values import shown

FILE = "onward.toml"
LINES, TEXT = "lines", "text"
SETTINGS = {"command", "format", "arguments", "env", "reports_cost"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[^\s=,$\[\]]+")


class Program(msgspec.Struct, frozen=True):
    """A program that works as an agent.

    `command` is what is executed, without a shell; `arguments` follow ours. It gets the variables that `keys`
    and `env` name besides those that every command gets. `provider` is whose models it asks.
    """

    name: str
    format: str
    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    provider: str = ""
    reports_cost: bool = False
    install: str = ""
    log_in: str = ""

    @property
    def variables(self) -> tuple[str, ...]:
        """The names and patterns of the variables that it gets besides the usual ones."""
        return (*self.keys, *self.env)


KNOWN_PROGRAMS: Mapping[str, Program] = {
    known.name: known
    for known in (
        Program(
            "claude-code",
            "claude-code",
            ("claude",),
            keys=("ANTHROPIC_API_KEY",),
            provider="anthropic",
            reports_cost=True,
            install="npm install -g @anthropic-ai/claude-code",
            log_in="start `claude` and type /login, or set ANTHROPIC_API_KEY",
        ),
        Program(
            "codex",
            "codex",
            ("codex",),
            keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
            provider="openai",
            install="npm install -g @openai/codex",
            log_in="run `codex login`, or set CODEX_API_KEY",
        ),
        Program(
            "gemini",
            "gemini",
            ("gemini",),
            keys=("GEMINI_API_KEY",),
            provider="google",
            install="npm install -g @google/gemini-cli",
            log_in="start `gemini` and log in, or set GEMINI_API_KEY",
        ),
    )
}
FORMATS = (*KNOWN_PROGRAMS, LINES, TEXT)


def read_programs(table: Mapping[str, Any], path: Callable[[str], str]) -> dict[str, Program]:
    """All programs, by name; InvalidInput if the settings describe one badly.

    `path` gives a path of the settings from the project's directory.
    """
    return {**KNOWN_PROGRAMS, **{name: _program(name, value, path) for name, value in table.items()}}


def _program(name: str, value: object, path: Callable[[str], str]) -> Program:
    where = f"[programs.{name}] in {FILE}"
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{where} has no usable name; use letters, digits, `-`, `_` and `.`.")
    if not isinstance(value, dict):
        raise InvalidInput(f"programs.{name} in {FILE} is {shown(value)}; write a table [programs.{name}].")
    if unknown := sorted(value.keys() - SETTINGS):
        known = ", ".join(sorted(SETTINGS))
        raise InvalidInput(f"{where} sets {', '.join(unknown)}; known settings are {known}.")
    format = value.get("format", name if name in KNOWN_PROGRAMS else LINES)
    if format not in FORMATS:
        raise InvalidInput(f"format of {where} is {shown(format)}; write one of {', '.join(FORMATS)}.")
    like = KNOWN_PROGRAMS.get(format, Program(name, format, ()))
    command = _texts(value.get("command", list(like.command)), f"command of {where}")
    if not command or not command[0]:
        raise InvalidInput(f'{where} has no command; write one, as in command = ["./agent", "--quiet"].')
    reports_cost = value.get("reports_cost", like.reports_cost)
    if not isinstance(reports_cost, bool):
        raise InvalidInput(f"reports_cost of {where} is {shown(reports_cost)}; write true or false.")
    return replace(
        like,
        name=name,
        command=(_placed(command[0], path), *command[1:]),
        arguments=_texts(value.get("arguments", []), f"arguments of {where}"),
        env=_variables(_texts(value.get("env", []), f"env of {where}"), where),
        reports_cost=reports_cost,
        install="" if command != like.command else like.install,
    )


def _texts(value: object, where: str) -> tuple[str, ...]:
    is_list = isinstance(value, list) and all(isinstance(one, str) and "\0" not in one for one in value)
    if not is_list:
        raise InvalidInput(f'{where} is {shown(value)}; write a list of texts, as in ["--flag", "value"].')
    assert isinstance(value, list)
    return tuple(value)


def _variables(names: Sequence[str], where: str) -> tuple[str, ...]:
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise InvalidInput(
                f"env of {where} has {name!r}, which names no variable; write a name, or AWS_*."
            )
    return tuple(names)


def _placed(word: str, path: Callable[[str], str]) -> str:
    """A path is meant from the project's directory, a bare name is looked for in PATH."""
    return path(os.path.expanduser(word)) if os.sep in word else word

"""What a process must have to execute a run: handlers, by their names, and the run's working directory.

Needs are stored as one text, separated by spaces, so a need has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from urllib.parse import quote, unquote

_DIRECTORY = "dir:"
_A_DIRECTORY = f"{_DIRECTORY}/"


def directory_need(workdir: str) -> str:
    """The need for a directory."""
    return _DIRECTORY + "".join(quote(sign) if sign.isspace() or sign == "%" else sign for sign in workdir)


def needed_directory(need: str) -> str | None:
    """The directory that is needed; None if the need is a handler."""
    return unquote(need.removeprefix(_DIRECTORY)) if need.startswith(_A_DIRECTORY) else None


def with_directory(needs: Iterable[str], workdir: str | None) -> tuple[str, ...]:
    """The handlers among the needs, and this directory. A run that needs no handler works nowhere."""
    handlers = tuple([need for need in needs if not need.startswith(_A_DIRECTORY)])
    return (*handlers, directory_need(workdir)) if workdir is not None and handlers else handlers


def handlers_missing(needs: Iterable[str], kinds: Collection[str]) -> list[str]:
    """The handlers that a process with these `kinds` lacks."""
    return [need for need in needs if need not in kinds and not need.startswith(_A_DIRECTORY)]

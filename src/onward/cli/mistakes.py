"""What is wrong with a command line, in one sentence."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from itertools import chain
from typing import Any

from cyclopts import CycloptsError
from cyclopts.exceptions import (
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

OFFERED_MAX = 2


def sentence(error: CycloptsError, commands: Collection[str]) -> str:
    """What was typed and is not known, and the name that it nearly is, if there is one."""
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        typed = error.unused_tokens[0]
        return f'Unknown command "{typed}".{_hint(typed, commands)}'
    if isinstance(error, UnknownOptionError):
        typed = (error.token.keyword or error.token.value).partition("=")[0]
        names = chain.from_iterable(one.names for one in error.argument_collection if one.parse)
        return f"Unknown option: {typed}.{_hint(typed, [*names])}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return _missing(error, error.argument)
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"There is no place for {shlex.join(error.unused_tokens)}."
    if isinstance(error, RepeatArgumentError):
        return f"{error.token.keyword} is given twice; say it once."
    return str(error)


def _missing(error: MissingArgumentError, argument: Any) -> str:
    name = error.keyword or argument.name
    command = " ".join(("onward", *(error.command_chain or ())))
    is_given = any(token.keyword for token in argument.tokens) or error.keyword is not None
    return f"{name} needs a value." if is_given else f"`{command}` needs {name}."


def _hint(typed: str, names: Collection[str]) -> str:
    from onward.pipeline.vocabulary import is_near

    word = typed.lower().lstrip("-")
    near = sorted({n for n in names if is_near(word, n.lstrip("-")) or _is_slip(word, n.lstrip("-"))})
    longer = sorted(name for name in names if len(word) >= 3 and name.lstrip("-").startswith(word))
    found = near[:OFFERED_MAX] or (longer if len(longer) == 1 else [])
    return f" Did you mean {' or '.join(found)}?" if found else ""


def _is_slip(word: str, name: str) -> bool:
    """Whether one letter is another. There are few commands, so this says enough even of a short one."""
    return len(word) == len(name) >= 3 and sum(a != b for a, b in zip(word, name, strict=True)) == 1

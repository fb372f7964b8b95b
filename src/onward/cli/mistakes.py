"""What is wrong with a command line, in one sentence."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from cyclopts import CycloptsError
from cyclopts.exceptions import UnknownCommandError, UnknownOptionError


def sentence(error: CycloptsError, commands: Collection[str]) -> str:
    """What was typed and is not known, and the name that it nearly is, if there is one."""
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        typed = error.unused_tokens[0]
        return f'Unknown command "{typed}".{_hint(typed, commands)}'
    if isinstance(error, UnknownOptionError):
        typed = (error.token.keyword or error.token.value).partition("=")[0]
        names = chain.from_iterable(one.names for one in error.argument_collection if one.parse)
        return f"Unknown option: {typed}.{_hint(typed, [*names])}"
    return str(error)


def _hint(typed: str, names: Collection[str]) -> str:
    from onward.pipeline.rules.words.vocabulary import is_near

    word = typed.lower().lstrip("-")
    near = sorted(name for name in names if is_near(word, name.lstrip("-")))
    longer = sorted(name for name in names if len(word) >= 3 and name.lstrip("-").startswith(word))
    found = near[:1] or (longer if len(longer) == 1 else [])
    return f" Did you mean {found[0]}?" if found else ""

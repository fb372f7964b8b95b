"""The words of a command line: before they are parsed, and in what is said about them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from onward.errors import InvalidInput

WITH_VALUE = ("--db", "--app", "--runs", "--files")
ALONE = ("--json",)
GENERATED = 26
"""How many characters an id has that Onward gave."""
_COMMAND = re.compile(r"`(onward [^`]+)`")
_ID = re.compile(r"(?<![\w./-])[0-9a-z][0-9a-z-]{0,63}(?![\w/-])")


def is_everywhere(word: str) -> bool:
    """Whether a word is a flag of every command."""
    return word.partition("=")[0] in (*WITH_VALUE, *ALONE)


def with_command_first(words: Sequence[str]) -> list[str]:
    """The same command line with the flags before the command moved behind it.

    `onward --db X status` is `onward status --db X`. Other flags stay, and are refused where they are.
    """
    at = 0
    while at < len(words) and is_everywhere(words[at]):
        at += 2 if words[at] in WITH_VALUE else 1
    before, command = words[:at], words[at:]
    if not before:
        return [*words]
    if not command:
        raise InvalidInput(f"there is no command after {' '.join(before)}; write one, such as `status`.")
    for flag in (word.partition("=")[0] for word in before if word.startswith("-")):
        if flag in WITH_VALUE and any(word.partition("=")[0] == flag for word in command):
            raise InvalidInput(f"{flag} is given twice; say it once.")
    return [*command, *before]


def as_typed(text: str, words: Sequence[str]) -> str:
    """The same text with the display ids of runs that the command line names by theirs.

    An id that is part of a path stays: the path would be another one.
    """
    from onward.model.ids import display_id

    def named(found: re.Match[str]) -> str:
        run_id = found[0]
        if run_id in words:
            return run_id
        short = display_id(run_id)
        is_meant = short in words or (len(run_id) == GENERATED and any(map(short.startswith, typed)))
        return short if is_meant else run_id

    typed = tuple(word for word in words if word and not word.startswith("-"))
    return _ID.sub(named, text)


def with_flags(text: str, words: Sequence[str]) -> str:
    """The same text, with the flags of the command line in the commands that it says to type."""
    given = _given(words)
    if not given:
        return text

    def told(found: re.Match[str]) -> str:
        command, dashes, others = found[1].partition(" -- ")
        return f"`{command} {given}{dashes}{others}`"

    return _COMMAND.sub(told, text)


def _given(words: Sequence[str]) -> str:
    """The flags that name the database and the app, as they were given."""
    found: list[str] = []
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in WITH_VALUE:
            found += [flag, shlex.quote(value if equals else "".join(words[at + 1 : at + 2]))]
    return " ".join(found)

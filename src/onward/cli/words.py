"""The words of a command line, before they are parsed."""

from __future__ import annotations

from collections.abc import Sequence

from onward.errors import InvalidInput

WITH_VALUE = ("--db", "--app", "--runs", "--files")
ALONE = ("--json",)


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

"""The words of a command line: before they are parsed, their values, and what is wrong with them.

Values are given as text: `--set`, and the value of `--simulate`. What is wrong is said in one sentence.
`main` needs this for every command line, so it imports little.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
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


def context_of(settings: Iterable[str], flag: str = "--set") -> dict[str, Any]:
    """The values that `--set` gives: `KEY=VALUE` is text, `KEY:=JSON` any JSON value."""
    return dict(_setting(setting, flag) for setting in settings)


def values_of_file(path: str | None) -> dict[str, Any]:
    """The context values in the JSON object of a file, for `--set-file`."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read())
    except OSError as error:
        raise InvalidInput(f"--set-file {path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--set-file {path} is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidInput(f'--set-file {path} is not a JSON object; write {{"KEY": VALUE, …}}.')
    return found


def _setting(setting: str, flag: str) -> tuple[str, Any]:
    key, equals, value = setting.partition("=")
    is_json = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise InvalidInput(f"{flag} {setting!r} sets nothing; write KEY=VALUE for text or KEY:=JSON.")
    if not is_json:
        return key, value
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{flag} {key}:= is followed by something that is not JSON: {error}.") from None


def one_of(flags: Mapping[str, bool]) -> str | None:
    """The one flag that is given, or None; refuses several, because they contradict each other."""
    given = [name for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(f'--{name}' for name in given)} contradict each other; say one.")
    return given[0] if given else None


def with_script_joined(tokens: list[str]) -> list[str]:
    """Arguments in which `--simulate` always has its value: `--simulate SCRIPT.json` or nothing.

    Only a name that ends in .json is a script, so that `run --simulate FILE.dot` runs the file.
    """
    joined: list[str] = []
    for token in tokens:
        if joined and joined[-1] == "--simulate=" and token.endswith(".json") and not token.startswith("-"):
            joined[-1] += token
        else:
            joined.append("--simulate=" if token == "--simulate" else token)
    return joined


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

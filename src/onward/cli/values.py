"""Values given as text: `--set`, and the value of `--simulate`; and flags of which one may be given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from onward.errors import InvalidInput


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

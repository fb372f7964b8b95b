"""Values of the context in a text: `$name` and `${context.key}`.

A value is text: nothing in it is expanded. A reference that the context does not have stays as it is written,
so a text without references means the same as ever. `$$` is a literal `$`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from onward.errors import InvalidInput

CHARACTERS_MAX = 8_388_608
"""A text after expansion: a long value that is used often must not fill the memory."""
PREFIX = "context."
_REFERENCE = re.compile(r"\$\$|\$([A-Za-z_]\w*)|\$\{([A-Za-z_][\w.-]*)\}", re.ASCII)
_JSON = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
_MISSING = object()


class Expanded(NamedTuple):
    """A text with its values, and the names that the context did not have, each once."""

    text: str
    unknown: tuple[str, ...]


def expand(text: str, context: Mapping[str, Any]) -> Expanded:
    """The text with the values that it names."""
    if "$" not in text:
        return Expanded(text, ())
    parts: list[str] = []
    unknown: dict[str, None] = {}
    at = size = 0
    for match in _REFERENCE.finditer(text):
        name = match[1] or match[2]
        value = "$" if name is None else _value(name, context)
        if value is None:
            unknown[name] = None
            value = match[0]
        parts += (text[at : match.start()], value)
        at = match.end()
        size += len(parts[-2]) + len(value)
        if size > CHARACTERS_MAX:
            raise InvalidInput(f"a text has more than {CHARACTERS_MAX:,} characters with its values.")
    return Expanded("".join((*parts, text[at:])), tuple(unknown))


def escaped(text: str) -> str:
    """The text so that it expands to itself."""
    return text.replace("$", "$$")


def references(text: str) -> Iterator[tuple[str, int]]:
    """The names in a text, each with its place."""
    for match in _REFERENCE.finditer(text):
        if match[1] or match[2]:
            yield match[1] or match[2], match.start()


def as_words(value: Any) -> str:
    """A value as conditions and texts have it: text as it is, nothing for null, anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else _JSON.encode(value)


def find_value(name: str, context: Mapping[str, Any]) -> Any:
    """The value that `${name}` means; None if the context does not have it."""
    found = _reached(name, context)
    return None if found is _MISSING else found


def _value(name: str, context: Mapping[str, Any]) -> str | None:
    found = _reached(name, context)
    return None if found is _MISSING else as_words(found)


def _reached(name: str, context: Mapping[str, Any]) -> Any:
    """The value under a name; a handler may have stored it with or without the prefix `context.`."""
    found = _found(name, context)
    if found is _MISSING and name.startswith(PREFIX):
        found = _found(name.removeprefix(PREFIX), context)
    if found is _MISSING and name in ("goal", f"{PREFIX}goal"):
        found = context.get("graph.goal", _MISSING)
    return found


def _found(name: str, context: Mapping[str, Any]) -> Any:
    """A value by its key, or a member of an object by the key and the member's name."""
    if name in context:
        return context[name]
    for dot in (match.start() for match in re.finditer(r"\.", name)):
        inner = context.get(name[:dot])
        if isinstance(inner, Mapping):
            found = _found(name[dot + 1 :], inner)
            if found is not _MISSING:
                return found
    return _MISSING

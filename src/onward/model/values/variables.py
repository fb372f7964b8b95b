"""Values of the context as environment variables of commands.

They are never inserted into a command's text: a value is made by a model or comes from outside, and a shell
would execute what is in it. Their names have a prefix, so that no value can replace PATH or the like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from onward.model.values.references import as_words

PREFIX = "ONWARD_CONTEXT_"
OMITTED = "ONWARD_CONTEXT_OMITTED"
"""Names the variables that are not set, because no environment could hold them."""
VALUE_BYTES_MAX, BYTES_MAX = 32_768, 262_144
_OTHER = re.compile(r"[^A-Za-z0-9]")
_NAMED = re.compile(rf"{PREFIX}\w+", re.ASCII)


def variable_of(key: str) -> str:
    """The variable of a context key: `tool.output` is in ONWARD_CONTEXT_TOOL_OUTPUT."""
    return PREFIX + _OTHER.sub("_", key).upper()


def context_variables(context: Mapping[str, Any]) -> dict[str, str]:
    """A variable for each value; those that do not fit are named in ONWARD_CONTEXT_OMITTED.

    Two keys whose variable has the same name have none: a command could not know which one it got.
    """
    found: dict[str, str | None] = {}
    for key, value in context.items():
        name = variable_of(key)
        found[name] = None if name in found or name == OMITTED else _short(value)
    sizes = {name: len(value.encode()) for name, value in found.items() if value is not None}
    kept: dict[str, str] = {}
    left = BYTES_MAX
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        left -= sizes[name] + len(name)
        if sizes[name] <= VALUE_BYTES_MAX and left >= 0:
            kept[name] = found[name] or ""
    omitted = sorted(found.keys() - kept.keys())
    return {**kept, OMITTED: " ".join(omitted)[:VALUE_BYTES_MAX]} if omitted else kept


def _short(value: Any) -> str | None:
    """The value as text, if an environment can hold it; a long text is not even looked at."""
    if isinstance(value, str) and len(value) > VALUE_BYTES_MAX:
        return None
    text = as_words(value)
    return None if "\0" in text else text


def unset_in(command: str, variables: Mapping[str, str]) -> list[str]:
    """The variables of this kind that a command names and does not get."""
    return sorted({*_NAMED.findall(command)} - variables.keys() - {OMITTED})

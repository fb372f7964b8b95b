"""Compares what a command printed with the description of its reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from onward.cli.replies import REPLIES, ErrorShown, FailureShown

OPEN = (ErrorShown,)  # has more fields for some codes


def check_reply(words: Sequence[str], printed: str) -> None:
    """Fail if a command with --json printed something that `docs/json.md` does not describe."""
    words = words[: words.index("--")] if "--" in words else words
    name = next((word for word in words if word in REPLIES), "")
    if not name or "--json" not in words or "--help" in words or (name == "export" and "--out" not in words):
        return
    for line in printed.splitlines():
        value = json.loads(line)
        faults = [
            fault(value, kind, name) for kind in (*(reply.type for reply in REPLIES[name]), FailureShown)
        ]
        assert None in faults, f"`onward {' '.join(words)}` is not described: {'; '.join(map(str, faults))}"


def fault(value: Any, kind: Any, where: str) -> str | None:
    """The first place where a value is not of its kind."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return None
    if is_typeddict(kind):
        return _fault_of_object(value, kind, where)
    if origin in (Union, UnionType):
        found = [fault(value, part, where) for part in parts]
        return None if None in found else found[0]
    if origin is Literal:
        return None if value in parts else f"{where} is {value!r}, not one of {parts}"
    if origin is list:
        if not isinstance(value, list):
            return f"{where} is no list"
        return next(filter(None, (fault(one, parts[0], f"{where}[]") for one in value)), None)
    if origin is dict:
        if not isinstance(value, dict):
            return f"{where} is no object"
        return next(filter(None, (fault(one, parts[1], f"{where}.*") for one in value.values())), None)
    is_so = type(value) in ((int, float) if kind is float else (kind,))
    return None if is_so else f"{where} is {type(value).__name__}, not {kind.__name__}"


def _fault_of_object(value: Any, kind: Any, where: str) -> str | None:
    if not isinstance(value, dict):
        return f"{where} is no {kind.__name__}"
    hints = get_type_hints(kind, include_extras=True)
    for field, hint in hints.items():
        if get_origin(hint) is NotRequired:
            (hint,) = get_args(hint)
            if field not in value:
                continue
        if field not in value:
            return f"{where} lacks {field} of {kind.__name__}"
        found = fault(value[field], hint, f"{where}.{field}")
        if found:
            return found
    unknown = [] if kind in OPEN else sorted(value.keys() - hints.keys())
    return f"{where} has {', '.join(unknown)}, which {kind.__name__} does not" if unknown else None

"""What is wrong with a value, in sentences that a small model can follow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

SENTENCE_CHARACTERS_MAX = 300
VALUE_CHARACTERS_MAX = 60
NAMES_MAX = 20

_Sentence = Callable[["ValidationError", Mapping[str, Any]], str]
_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "object": "an object",
    "array": "an array",
}


def sentence(error: ValidationError, schema: Mapping[str, Any]) -> str:
    """One problem: where it is, what is expected, and what is there."""
    say: _Sentence = _SENTENCES.get(error.kind.name, _other)
    told = say(error, schema)
    return told if len(told) <= SENTENCE_CHARACTERS_MAX else told[: SENTENCE_CHARACTERS_MAX - 1] + "…"


def _path(path: Sequence[str | int]) -> str:
    """`a.b[2]`; the whole value has no name."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _named(path: Sequence[str | int]) -> str:
    return f"`{_path(path)}`" if path else "the value"


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 1] + "…"


def _listed(values: Sequence[object], last: str) -> str:
    shown = [_shown(value) for value in values[:NAMES_MAX]] + ["…"] * (len(values) > NAMES_MAX)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {last} {shown[-1]}"


def _must(error: ValidationError, what: str) -> str:
    return f"{_named(error.instance_path)} must {what}, not {_shown(error.instance)}"


def _required(error: ValidationError, schema: Mapping[str, Any]) -> str:
    return f"{_named([*error.instance_path, error.kind.value])} is missing"


def _unknown(error: ValidationError, schema: Mapping[str, Any]) -> str:
    names = [_named([*error.instance_path, name]) for name in error.kind.value]
    shown = ", ".join(names[:NAMES_MAX])
    part: Any = schema
    for word in error.schema_path[:-1]:
        part = part.get(word) if isinstance(part, dict) else None
    known = list(part.get("properties", {})) if isinstance(part, dict) else []
    told = f"{shown} {'is' if len(names) == 1 else 'are'} not known"
    return f"{told}; use only {', '.join(f'`{name}`' for name in known[:NAMES_MAX])}" if known else told


def _type(error: ValidationError, schema: Mapping[str, Any]) -> str:
    return _must(error, f"be {_of_types(error.kind.value)}")


def _of_types(names: Iterable[str]) -> str:
    """The types in words, null last: it is the exception."""
    ordered = sorted(dict.fromkeys(names), key=lambda name: name == "null")
    return " or ".join(_TYPES.get(name, name) for name in ordered)


def _enum(error: ValidationError, schema: Mapping[str, Any]) -> str:
    return _must(error, f"be {_listed(error.kind.value, 'or')}")


def _const(error: ValidationError, schema: Mapping[str, Any]) -> str:
    return _must(error, f"be {_shown(error.kind.value)}")


def _alternatives(error: ValidationError, schema: Mapping[str, Any]) -> str:
    """The types that are possible; or else what is wrong with the alternative that comes nearest."""
    branches = [branch for branch in getattr(error.kind, "context", ()) if branch]
    here = [branch for branch in branches if _is_type(branch[0], error)]
    if branches and len(here) == len(branches):
        return _must(error, f"be {_of_types(name for branch in here for name in branch[0].kind.value)}")
    near = [branch for branch in branches if not _is_type(branch[0], error)]
    if not near:
        return f"{_named(error.instance_path)} fits more than one of its alternatives"
    best = min(near, key=len)
    return "; ".join(sentence(one, {}) for one in best[:3])


def _is_type(error: ValidationError, above: ValidationError) -> bool:
    return error.kind.name == "type" and error.instance_path == above.instance_path


def _limit(what: str) -> _Sentence:
    return lambda error, schema: _must(error, what.format(_shown(error.kind.value)))


def _pattern(error: ValidationError, schema: Mapping[str, Any]) -> str:
    pattern = getattr(error.kind, "pattern", None)
    if pattern is None:  # it was given up
        return f"{_named(error.instance_path)} cannot be held against its pattern: that would take too long"
    return _must(error, f"match the pattern {pattern}")


def _other(error: ValidationError, schema: Mapping[str, Any]) -> str:
    said = error.message.splitlines()[0] if error.message else "does not fit"
    return f"{_named(error.instance_path)} does not fit the schema: {said}"


_SENTENCES: Mapping[str, _Sentence] = {
    "required": _required,
    "additionalProperties": _unknown,
    "unevaluatedProperties": _unknown,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "anyOf": _alternatives,
    "oneOf": _alternatives,
    "minimum": _limit("be at least {}"),
    "maximum": _limit("be at most {}"),
    "exclusiveMinimum": _limit("be more than {}"),
    "exclusiveMaximum": _limit("be less than {}"),
    "multipleOf": _limit("be a multiple of {}"),
    "minLength": _limit("have at least {} characters"),
    "maxLength": _limit("have at most {} characters"),
    "minItems": _limit("have at least {} items"),
    "maxItems": _limit("have at most {} items"),
    "pattern": _pattern,
    "format": lambda error, schema: _must(error, f"be a valid {error.kind.value}"),
}

"""Checks values against JSON Schemas: the arguments of tools, and the structured answers of agents.

Schemas come from users, from functions and from servers of others, and values from models, so both are
bounded: nothing is fetched, no pattern and no chain of references can take long. The validator is imported
with the first schema. What is wrong with a value is told in sentences that a small model can follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onward.errors import InvalidInput

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator


SCHEMA_BYTES_MAX = 256 * 1024
DEPTH_MAX = 64
"""How deeply schemas and values may be nested."""
VISITS_MAX = 10_000
"""How many parts of a schema may apply to one value: references can double them at every level."""
BACKTRACKS_MAX = 10_000
"""A pattern without look-around and back-references takes linear time; the others end after so many steps."""
PATTERN_BYTES_MAX = 1024 * 1024
PROBLEMS_MAX = 10

_SUBSCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")  # a list of schemas
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")  # a table of them
_VALUES = ("enum", "const", "default", "examples", "example")  # no schemas, whatever they look like
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def problems(schema: dict[str, Any], value: object) -> list[str]:
    """What is wrong with a value, in sentences that a model can follow; none if it fits the schema."""
    validator = _validator(schema, "the schema")
    if _depth(value) > DEPTH_MAX:
        return [f"the value is nested deeper than {DEPTH_MAX} levels"]
    try:
        found = list(validator.iter_errors(value))
    except ValueError as error:  # a number or a text that is not JSON
        return [f"the value is not JSON: {str(error).splitlines()[0]}"]
    told = list(dict.fromkeys(sentence(error, schema) for error in found))
    more = len(told) - PROBLEMS_MAX
    return told if more <= 0 else [*told[:PROBLEMS_MAX], f"and {more} more problems"]


def check_schema(schema: object, where: str) -> None:
    """Refuse what is no schema, or one that is too large, too deep, or refers to anything outside itself."""
    if not isinstance(schema, dict):
        raise InvalidInput(f"{where} is not a JSON Schema; write an object such as {{'type': 'object'}}.")
    _validator(schema, where)


def _validator(schema: dict[str, Any], where: str) -> Validator:
    from jsonschema_rs import FancyRegexOptions, ReferencingError, ValidationError, validator_for

    _check_bounds(schema, where)
    patterns = FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX, size_limit=PATTERN_BYTES_MAX)
    try:
        return validator_for(schema, pattern_options=patterns, offline=True)
    except (ValidationError, ReferencingError, ValueError) as error:
        place = "".join(f"/{part}" for part in getattr(error, "instance_path", ()))
        at = f" at {place}" if place else ""
        why = str(getattr(error, "message", error)).splitlines()[0]
        raise InvalidInput(f"{where} is not a JSON Schema{at}: {why[:300]}; correct it.") from None


def _check_bounds(schema: dict[str, Any], where: str) -> None:
    if _depth(schema) > DEPTH_MAX:
        raise InvalidInput(f"{where} is nested deeper than {DEPTH_MAX} levels; make it flatter.")
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, msgspec.MsgspecError):
        raise InvalidInput(f"{where} contains something that is not JSON; write plain values.") from None
    if size > SCHEMA_BYTES_MAX:
        raise InvalidInput(f"{where} has {size:,} bytes; at most {SCHEMA_BYTES_MAX:,} are possible.")
    _Visits(schema, where).check()


def _depth(value: object) -> int:
    """How deeply a value is nested, as far as that matters."""
    level, depth = [value], 0
    while level and depth <= DEPTH_MAX:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (
                outer.values()
                if isinstance(outer, dict)
                else outer
                if isinstance(outer, list | tuple)
                else ()
            )
            if isinstance(inner, dict | list | tuple)
        ]
    return depth


class _Visits:
    """Finds references to the outside, and counts what applies to one value."""

    def __init__(self, schema: dict[str, Any], where: str) -> None:
        self._schema, self._where = schema, where
        self._counts: dict[int, int] = {}

    def check(self) -> None:
        for part in _parts(self._schema):
            for name in _REFERENCES:
                target = part.get(name, "#")
                if not isinstance(target, str) or not target.startswith("#"):
                    raise InvalidInput(
                        f"{self._where} refers to {str(target)[:100]!r}, which is outside of it; "
                        "put that part under $defs, and refer to it as '#/$defs/NAME'."
                    )
            if self._count(part) > VISITS_MAX:
                raise InvalidInput(
                    f"{self._where} applies more than {VISITS_MAX:,} parts to one value; make it simpler."
                )

    def _count(self, part: object) -> int:
        """How many parts of the schema apply to a value to which this one does."""
        if not isinstance(part, dict):
            return 1
        if id(part) not in self._counts:
            self._counts[id(part)] = 1  # of one that refers to itself, which the validator stops at
            found = 1 + sum(self._count(inner) for inner in self._beside(part))
            self._counts[id(part)] = min(found, VISITS_MAX + 1)
        return self._counts[id(part)]

    def _beside(self, part: dict[str, Any]) -> list[Any]:
        """The parts that apply to the same value as this one."""
        found: list[Any] = []
        for name in _IN_PLACE:
            inner = part.get(name)
            if isinstance(inner, list):
                found += inner
            elif name == "dependentSchemas" and isinstance(inner, dict):
                found += inner.values()
            elif inner is not None:
                found.append(inner)
        return [*found, *(self._at(part[name]) for name in _REFERENCES if name in part)]

    def _at(self, pointer: str) -> object:
        """What a reference names; None if that is not there, which the validator says."""
        at: Any = self._schema
        for word in pointer.removeprefix("#").split("/")[1:]:
            word = word.replace("~1", "/").replace("~0", "~")
            if isinstance(at, list) and word.isdecimal() and int(word) < len(at):
                at = at[int(word)]
            else:
                at = at.get(word) if isinstance(at, dict) else None
        return at


def _parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Every schema inside a schema, and itself."""
    found, waiting = [], [schema]
    while waiting:
        part = waiting.pop()
        found.append(part)
        for name, inner in part.items():
            if name in _VALUES:
                continue
            if name in _NAMED and isinstance(inner, dict):
                inner = list(inner.values())
            waiting += [
                one for one in (inner if isinstance(inner, list) else [inner]) if isinstance(one, dict)
            ]
    return found


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
        return f"{_named(error.instance_path)} matches more than one of its alternatives"
    best = min(near, key=len)
    return "; ".join(sentence(one, {}) for one in best[:3])


def _is_type(error: ValidationError, above: ValidationError) -> bool:
    return error.kind.name == "type" and error.instance_path == above.instance_path


def _limit(what: str) -> _Sentence:
    return lambda error, schema: _must(error, what.format(_shown(error.kind.value)))


def _pattern(error: ValidationError, schema: Mapping[str, Any]) -> str:
    pattern = getattr(error.kind, "pattern", None)
    if pattern is None:  # it was given up
        where = _named(error.instance_path)
        return f"{where} cannot be checked against its pattern, because that would take too long"
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

"""Checks values against JSON Schemas: the arguments of tools, and the structured answers of agents.

Schemas come from users, from functions and from servers of others, and values from models, so both are
bounded: nothing is fetched, no pattern and no chain of references can take long. The validator is imported
with the first schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onward.agents.tools.schema_words import sentence
from onward.errors import InvalidInput

if TYPE_CHECKING:
    from jsonschema_rs import Validator

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
        raise InvalidInput(f"{where} holds something that is not JSON; write plain values.") from None
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

"""The context of a run: what it may hold, which keys are the engine's, and how texts refer to it.

A value that went through the database must come back as exactly what it was, with its type. What cannot, is
refused at the moment it is set, not discovered at the resume.

Some keys belong to the engine. `outcome` and `preferred_label` are the result of the last step and are
stored with it. `current_node` and `internal.retry_count.<node>` follow from the run's state, so they are
computed when they are read, and not stored. `graph.*` are the pipeline's own attributes, mirrored when the
run was created.

A text refers to a value by `$name` or `${context.key}`. A value is text: nothing in it is expanded. A
reference that the context does not have stays as it is written, so a text without references means the same
as ever. `$$` is a literal `$`.

A command gets values as environment variables. They are never inserted into its text: a value is made by a
model or comes from outside, and a shell would execute what is in it. Their names have a prefix, so that no
value can replace PATH or the like.
"""

from __future__ import annotations

import json
import math
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from onward.errors import InvalidInput, UnstorableValue

DEPTH_MAX = 64
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def check_value(value: object, where: str, depth: int = 0) -> None:
    """Refuse, naming `where`, what would not come back from JSON exactly as it went in."""
    match value:
        case None | bool():
            return
        case str():
            _check_text(value, where)
        case int() if type(value) is int:
            if not INT_MIN <= value <= INT_MAX:
                raise UnstorableValue(f"{where} is an integer of more than 64 bits; store it as a string.")
        case float() if type(value) is float:
            if not math.isfinite(value):
                raise UnstorableValue(
                    f"{where} is {value!r}, which JSON cannot represent; store null or a string."
                )
        case list() | dict() if depth >= DEPTH_MAX:
            raise UnstorableValue(f"{where} is nested deeper than {DEPTH_MAX} levels; flatten it.")
        case list() if type(value) is list:
            for index, item in enumerate(value):
                check_value(item, f"{where}[{index}]", depth + 1)
        case dict() if type(value) is dict:
            for key, item in value.items():
                if type(key) is not str:
                    raise UnstorableValue(f"{where} has the key {key!r}; keys must be strings.")
                _check_text(key, where)
                check_value(item, f"{where}.{key}", depth + 1)
        case _:
            raise UnstorableValue(
                f"{where} is a {type(value).__name__}, which cannot be stored exactly; "
                "use null, true/false, numbers, strings, lists and dicts."
            )


def check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse context changes that cannot be stored exactly."""
    for key, value in changes.items():
        if type(key) is not str or not key:
            raise UnstorableValue(f"the context key {key!r} is not a non-empty string.")
        _check_text(key, "a context key")
        check_value(value, f"context value {key!r}")


def _check_text(text: str, where: str) -> None:
    if type(text) is not str:
        raise UnstorableValue(f"{where} is a {type(text).__name__}; store a plain string.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnstorableValue(
                f"{where} contains a lone surrogate, which is not a valid character."
            ) from None


def plain_text(text: object, where: str) -> str:
    """`text` as it can be stored: half characters become '?', and what is no text is refused."""
    if not isinstance(text, str):
        raise InvalidInput(f"{where} is a {type(text).__name__}; use a string.")
    return text.encode("utf-8", "replace").decode()


def changes_between(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to store so that `before` becomes `before | after`: values set, and tails appended.

    A list or text that only grew is stored as its new tail, so a conversation handed over whole at
    every step costs what is new, not its square.
    """
    fresh: dict[str, Any] = {}
    grown: dict[str, Any] = {}
    for key, value in after.items():
        old = before.get(key, _MISSING)
        if old is _MISSING:
            fresh[key] = value
        elif not same(old, value):
            tail = _tail(old, value)
            if tail is None:
                fresh[key] = value
            else:
                grown[key] = tail
    return fresh, grown


_MISSING: Any = object()


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, all the way down: 1 is not 1.0 and not true."""
    if one is other:
        return True
    # Python's own equality rejects most differences at once; the encoding tells 1, 1.0 and true apart.
    return type(one) is type(other) and one == other and _encode(one) == _encode(other)


def _tail(old: Any, new: Any) -> Any:
    """The part of `new` after `old` if `new` begins with it; None if it does not."""
    if type(old) is not type(new) or not isinstance(new, list | str) or not old or len(new) <= len(old):
        return None
    if isinstance(new, str):
        return new[len(old) :] if new.startswith(old) else None
    return new[len(old) :] if same(old, new[: len(old)]) else None


def copied(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The same values through the codec: nothing else refers to them."""
    return _decode(_encode(dict(changes)))  # type: ignore[no-any-return]


def grow(old: Any, tail: Any) -> Any:
    """The inverse of storing a tail."""
    return old + tail


# -- a mapping that never changes and whose successors share what they have in common --------------------
# Folding a log makes a new state for every event. Copying a context or a visit table each time would make
# the cost of a step grow with the size of the state; here a change costs a small overlay, and the
# overlay is merged into its base every `_OVERLAY_MAX` changes.
V = TypeVar("V", covariant=True)
T = TypeVar("T")
_OVERLAY_MAX = 32
_ABSENT = object()


class FrozenMap(Mapping[str, V]):
    """An immutable map from strings; `with_` and `with_all` give the successor."""

    __slots__ = ("_base", "_overlay")
    _base: dict[str, V]
    _overlay: dict[str, V]

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        self._base = dict(items) if items else {}
        self._overlay = {}

    def with_(self: FrozenMap[T], key: str, value: T) -> FrozenMap[T]:
        """The map in which `key` means `value`."""
        made: FrozenMap[T] = _new(FrozenMap)
        made._base, made._overlay = self._base, {**self._overlay, key: value}
        if len(made._overlay) > _OVERLAY_MAX:
            made._merge()
        return made

    def with_all(self: FrozenMap[T], changes: Mapping[str, T]) -> FrozenMap[T]:
        """The map with all `changes` made."""
        if not changes:
            return self
        made: FrozenMap[T] = _new(FrozenMap)
        made._base, made._overlay = self._base, {**self._overlay, **changes}
        if len(made._overlay) > _OVERLAY_MAX:
            made._merge()
        return made

    def _merge(self) -> None:
        self._base, self._overlay = {**self._base, **self._overlay}, {}

    def without(self, key: str) -> FrozenMap[V]:
        """The map in which `key` means nothing."""
        if key not in self:
            return self
        merged = {**self._base, **self._overlay}
        del merged[key]
        return FrozenMap(merged)

    def get(self, key: str, default: T = None) -> V | T:  # type: ignore[assignment]
        found = self._overlay.get(key, _ABSENT)
        if found is _ABSENT:
            return self._base.get(key, default)
        return found  # type: ignore[return-value]

    def __getitem__(self, key: str) -> V:
        found = self._overlay.get(key, _ABSENT)
        return self._base[key] if found is _ABSENT else found  # type: ignore[return-value]

    def __contains__(self, key: object) -> bool:
        return key in self._overlay or key in self._base

    def __iter__(self) -> Iterator[str]:
        yield from self._base
        base = self._base
        yield from (key for key in self._overlay if key not in base)

    def __len__(self) -> int:
        base = self._base
        return len(base) + sum(key not in base for key in self._overlay)

    def __eq__(self, other: object) -> bool:
        return self.plain() == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __repr__(self) -> str:
        return f"FrozenMap({self.plain()!r})"

    def plain(self) -> dict[str, V]:
        """A new ordinary dict with the same content."""
        return {**self._base, **self._overlay}


_new = FrozenMap.__new__
NOTHING: FrozenMap[Any] = FrozenMap()


# -- keys that belong to the engine ---------------------------------------------------------------------
GRAPH, INTERNAL = "graph.", "internal."
OUTCOME, PREFERRED_LABEL, CURRENT_NODE = "outcome", "preferred_label", "current_node"
LAST_RESPONSE = "last_response"
_SAID_BY_RESULT = {OUTCOME: "status", PREFERRED_LABEL: "preferred_label"}


def engine_values(node_id: str, retries: int = 0) -> dict[str, Any]:
    """What the context says about the node at work, and how many retries its step has spent."""
    return {CURRENT_NODE: node_id, f"{INTERNAL}retry_count.{node_id}": retries}


def as_seen(context: Mapping[str, Any], node_id: str, retries: int = 0) -> Mapping[str, Any]:
    """The context as the conditions on a node's edges see it; only to be read."""
    return ChainMap(engine_values(node_id, retries), context)  # type: ignore[arg-type]


def as_told(context: Mapping[str, Any], response: str, node_id: str, retries: int = 0) -> Mapping[str, Any]:
    """The context as texts see it; only to be read.

    The dialect keeps no more than the beginning of the last response, but a prompt means all of it.
    """
    seen = as_seen(context, node_id, retries)
    kept = context.get(LAST_RESPONSE)
    if not isinstance(kept, str) or len(response) <= len(kept) or not response.startswith(kept):
        return seen
    return ChainMap({LAST_RESPONSE: response}, seen)  # type: ignore[arg-type]


def check_given(changes: Mapping[str, Any]) -> None:
    """Refuse what a person may not put into a run's context, at its start or at a fork."""
    check_changes(changes)
    for key in changes:
        if key.startswith(GRAPH):
            name = key.removeprefix(GRAPH)
            raise InvalidInput(f"the context key {key!r} mirrors the pipeline; change {name!r} in its file.")
        if key == CURRENT_NODE or key.startswith(INTERNAL):
            raise InvalidInput(f"the context key {key!r} is reserved for the engine; use another name.")


def check_updates(updates: Mapping[str, Any]) -> None:
    """Refuse what a handler may not put into the context: nothing of it would be true, or stay."""
    check_given(updates)
    for key, field in _SAID_BY_RESULT.items():
        if key in updates:
            raise InvalidInput(
                f"the context key {key!r} is set by the engine; return a Result with {field}=… instead."
            )


# -- values in a text: `$name` and `${context.key}` ------------------------------------------------------
TEXT_CHARACTERS_MAX = 8_388_608
"""A text after expansion: a long value that is used often must not fill the memory."""
CONTEXT_PREFIX = "context."
_REFERENCE = re.compile(r"\$\$|\$([A-Za-z_]\w*)|\$\{([A-Za-z_][\w.-]*)\}", re.ASCII)
_JSON = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
_NO_VALUE = object()


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
        if size > TEXT_CHARACTERS_MAX:
            raise InvalidInput(f"a text has more than {TEXT_CHARACTERS_MAX:,} characters with its values.")
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
    return None if found is _NO_VALUE else found


def _value(name: str, context: Mapping[str, Any]) -> str | None:
    found = _reached(name, context)
    return None if found is _NO_VALUE else as_words(found)


def _reached(name: str, context: Mapping[str, Any]) -> Any:
    """The value under a name; a handler may have stored it with or without the prefix `context.`."""
    found = _found(name, context)
    if found is _NO_VALUE and name.startswith(CONTEXT_PREFIX):
        found = _found(name.removeprefix(CONTEXT_PREFIX), context)
    if found is _NO_VALUE and name in ("goal", f"{CONTEXT_PREFIX}goal"):
        found = context.get("graph.goal", _NO_VALUE)
    return found


def _found(name: str, context: Mapping[str, Any]) -> Any:
    """A value by its key, or a member of an object by the key and the member's name."""
    if name in context:
        return context[name]
    for dot in (match.start() for match in re.finditer(r"\.", name)):
        inner = context.get(name[:dot])
        if isinstance(inner, Mapping):
            found = _found(name[dot + 1 :], inner)
            if found is not _NO_VALUE:
                return found
    return _NO_VALUE


# -- values as environment variables of commands ---------------------------------------------------------
VARIABLE_PREFIX = "ONWARD_CONTEXT_"
OMITTED = "ONWARD_CONTEXT_OMITTED"
"""Names the variables that are not set, because no environment could hold them."""
VARIABLE_BYTES_MAX, VARIABLES_BYTES_MAX = 32_768, 262_144
_OTHER = re.compile(r"[^A-Za-z0-9]")
_NAMED = re.compile(rf"{VARIABLE_PREFIX}\w+", re.ASCII)


def variable_of(key: str) -> str:
    """The variable of a context key: `tool.output` is in ONWARD_CONTEXT_TOOL_OUTPUT."""
    return VARIABLE_PREFIX + _OTHER.sub("_", key).upper()


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
    left = VARIABLES_BYTES_MAX
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        left -= sizes[name] + len(name)
        if sizes[name] <= VARIABLE_BYTES_MAX and left >= 0:
            kept[name] = found[name] or ""
    omitted = sorted(found.keys() - kept.keys())
    return {**kept, OMITTED: " ".join(omitted)[:VARIABLE_BYTES_MAX]} if omitted else kept


def _short(value: Any) -> str | None:
    """The value as text, if an environment can hold it; a long text is not even looked at."""
    if isinstance(value, str) and len(value) > VARIABLE_BYTES_MAX:
        return None
    text = as_words(value)
    return None if "\0" in text else text


def unset_in(command: str, variables: Mapping[str, str]) -> list[str]:
    """The variables of this kind that a command names and does not get."""
    return sorted({*_NAMED.findall(command)} - variables.keys() - {OMITTED})

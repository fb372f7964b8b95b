"""The inputs that a pipeline declares: what a run of it needs to be told, of which type, and what is assumed.

    graph [
        inputs="topic, pages, tone, draft",
        input.topic="What to write about",
        input.pages="How many pages", input.pages.type=int, input.pages.default=3,
        input.tone.type="formal | casual", input.tone.default=formal,
        input.draft.type=bool, input.draft.default=true
    ]

`input.NAME` describes an input for people. Its type is text (the default), int, number, bool, json, or words
to choose from, separated by `|`. An input without a default must be given, unless `input.NAME.required` is
false. A pipeline that declares no inputs takes whatever it is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from onward.errors import InvalidInput
from onward.model.chat import GIVEN_BY_CHATS, KIND_NAME
from onward.model.values import shown
from onward.pipeline.graph import Graph
from onward.pipeline.source import Value, as_boolean, as_text

INPUTS_KEY, INPUT_BEGIN = "inputs", "input."
TEXT, INT, NUMBER, BOOL, JSON, CHOICE = "text", "int", "number", "bool", "json", "choice"
TYPES = (TEXT, INT, NUMBER, BOOL, JSON)
_TYPE, _DEFAULT, _REQUIRED = "type", "default", "required"
NAMES_MAX, ABOUT_CHARACTERS_MAX = 100, 1_000
_EXPECTED = {
    TEXT: "a text",
    INT: "a whole number",
    NUMBER: "a number",
    BOOL: "true or false",
    JSON: "JSON",
}


class DeclaredInput(msgspec.Struct, frozen=True):
    """An input of a pipeline. `choices`, of the type `choice`: the words to choose from."""

    name: str
    type: str = TEXT
    about: str = ""
    choices: tuple[str, ...] = ()
    default: Any = None
    is_required: bool = True

    @property
    def expected(self) -> str:
        """What it takes, in words."""
        return f"one of {', '.join(self.choices)}" if self.type == CHOICE else _EXPECTED[self.type]

    def read(self, value: Any) -> Any:
        """A value as the declared type, which a text is read as. A ValueError says what was expected."""
        try:
            return self._read(value)
        except ValueError:
            raise ValueError(self.expected) from None

    def _read(self, value: Any) -> Any:
        match self.type:
            case "text" if isinstance(value, str):
                return value
            case "choice" if value in self.choices:
                return value
            case "json":
                return value
            case "bool":
                return as_boolean(value)
            case "int" | "number" if isinstance(value, int | float) and not isinstance(value, bool):
                if self.type == NUMBER or isinstance(value, int):
                    return value
            case "int" if isinstance(value, str):
                return int(value.strip()) if len(value.strip()) < 20 else _refuse()
            case "number" if isinstance(value, str):
                number = json.loads(value.strip())
                return (
                    number if isinstance(number, int | float) and not isinstance(number, bool) else _refuse()
                )
        return _refuse()


def _refuse() -> Any:
    raise ValueError


def inputs_of(graph: Graph) -> tuple[DeclaredInput, ...]:
    """The inputs that a graph declares, in their order; what cannot be read is left out."""
    return tuple(_declared(graph.attrs, name) for name in _names(graph.attrs))


def take_inputs(graph: Graph, given: Mapping[str, Any], *, may_be_more: bool) -> dict[str, Any]:
    """What a new run has of what it is given: as the declared types, with defaults.

    `may_be_more`: a manager gives what it knows, also what is not declared, as chats do.
    """
    declared = {one.name: one for one in inputs_of(graph)}
    if not declared:
        return dict(given)
    there = ", ".join(declared)
    known = {*declared, *(given if may_be_more else GIVEN_BY_CHATS)}
    if unknown := [name for name in given if name not in known]:
        raise InvalidInput(
            f"pipeline {graph.name!r} has no input {shown(unknown[0])}; its inputs are {there}."
        )
    taken = {name: value for name, value in given.items() if name not in declared}
    for name, one in declared.items():
        if name in given:
            taken[name] = _taken(graph, one, given[name])
        elif one.default is not None:
            taken[name] = one.default
        elif one.is_required:
            about = f" ({one.about})" if one.about else ""
            raise InvalidInput(
                f"pipeline {graph.name!r} needs the input {name!r}{about}; its inputs are {there}."
            )
    return taken


def _taken(graph: Graph, one: DeclaredInput, value: Any) -> Any:
    try:
        return one.read(value)
    except ValueError:
        raise InvalidInput(
            f"the input {one.name!r} of pipeline {graph.name!r} is {shown(value)}; write {one.expected}."
        ) from None


def is_about_inputs(key: str) -> bool:
    """Whether an attribute of a graph describes an input."""
    return key.startswith(INPUT_BEGIN)


def as_input_names(value: Value) -> tuple[str, ...]:
    """Names of inputs, separated by commas; a ValueError says what was expected."""
    names = tuple(name.strip() for name in as_text(value).split(","))
    is_good = all(KIND_NAME.fullmatch(name) for name in names)
    if not is_good or len(set(names)) < len(names) or len(names) > NAMES_MAX:
        raise ValueError(
            f"at most {NAMES_MAX} different names, separated by commas; each has up to 50 letters, digits, _ "
            "and -, and starts with a letter"
        )
    return names


def mistakes(graph: Graph) -> Iterator[tuple[str, str]]:
    """The attributes about inputs that cannot be read, each with what to write."""
    names = _names(graph.attrs)
    for key, value in graph.attrs.items():
        if not key.startswith(INPUT_BEGIN):
            continue
        name, _, what = key.removeprefix(INPUT_BEGIN).partition(".")
        one = f"{INPUT_BEGIN}{name}"
        if name not in names:
            yield key, f'name {name} in {INPUTS_KEY}, as in {INPUTS_KEY}="{", ".join((*names, name))}"'
        elif what not in ("", _TYPE, _DEFAULT, _REQUIRED):
            yield key, f"write {one}, {one}.{_TYPE}, {one}.{_DEFAULT} or {one}.{_REQUIRED}"
        elif expected := _mistake(graph.attrs, name, what, value):
            yield key, f"write {expected}"


def _mistake(attrs: Mapping[str, Value], name: str, what: str, value: Value) -> str:
    try:
        match what:
            case "type":
                _type(value)
            case "required":
                as_boolean(value)
            case "default":
                _typed(attrs, name).read(_plain(value))
            case _ if not 0 < len(as_text(value)) <= ABOUT_CHARACTERS_MAX:
                return f"a description of at most {ABOUT_CHARACTERS_MAX:,} characters"
    except ValueError as error:
        return str(error)
    return ""


def _names(attrs: Mapping[str, Value]) -> tuple[str, ...]:
    try:
        return as_input_names(attrs[INPUTS_KEY]) if INPUTS_KEY in attrs else ()
    except ValueError:
        return ()


def _type(value: Value) -> tuple[str, tuple[str, ...]]:
    text = as_text(value).strip()
    if text in TYPES:
        return text, ()
    choices = tuple(word.strip() for word in text.split("|"))
    if len(choices) < 2 or not all(choices) or len(set(choices)) < len(choices):
        raise ValueError(f'{", ".join(TYPES)}, or words to choose from, as in "formal | casual"')
    return CHOICE, choices


def _typed(attrs: Mapping[str, Value], name: str) -> DeclaredInput:
    try:
        kind, choices = _type(attrs.get(f"{INPUT_BEGIN}{name}.{_TYPE}", TEXT))
    except ValueError:
        kind, choices = JSON, ()
    return DeclaredInput(name, kind, as_text(attrs.get(f"{INPUT_BEGIN}{name}", "")), choices)


def _declared(attrs: Mapping[str, Value], name: str) -> DeclaredInput:
    one, key = _typed(attrs, name), f"{INPUT_BEGIN}{name}"
    default = None
    if f"{key}.{_DEFAULT}" in attrs and not _mistake(attrs, name, _DEFAULT, attrs[f"{key}.{_DEFAULT}"]):
        default = one.read(_plain(attrs[f"{key}.{_DEFAULT}"]))
    required = attrs.get(f"{key}.{_REQUIRED}", True)
    is_required = default is None and (
        bool(_mistake(attrs, name, _REQUIRED, required)) or as_boolean(required)
    )
    return msgspec.structs.replace(one, default=default, is_required=is_required)


def _plain(value: Value) -> Any:
    return value if isinstance(value, str | bool | int | float) else as_text(value)

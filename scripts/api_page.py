"""The page about the Python surface, from its docstrings and signatures."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any, is_typeddict

import msgspec

import onward
from onward import errors
from onward.app.queue import HowSubmitted
from onward.engine.control.requests import Resume
from onward.worker import EmbeddedWorker

HEAD = """# Python

{generated}

What `from onward import …` offers, and the errors of `onward.errors`. Everything else is internal and may
change. How to write handlers: [functions](functions.md). How to submit and await runs:
[submitting](submitting.md). Coroutines and asynchronous iterators are marked `async`."""
FIRST = ("Onward", "StepContext", "Result")
"""What most programs use comes first."""
NOT_MADE = ("StepContext", "IsolatedStep", "Run", "Gate", "EmbeddedWorker")
"""What a program is given and does not make itself."""
TAKEN_AND_RETURNED = (EmbeddedWorker, HowSubmitted, Resume)
"""What methods take and return, and no program needs to import."""
INTERNAL = ("Onward.engine", "StepContext.asking", "StepContext.output", "StepContext.trims_output")


class MissingDocstring(Exception):
    """A public name has no docstring."""


def api_page(generated: str) -> str:
    """Every public name, then every error."""
    names = (*FIRST, *(name for name in onward.__all__ if name not in FIRST))
    lines = [HEAD.format(generated=generated), ""]
    lines += [", ".join(f"[{name}](#{name.lower()})" for name in (*names, "Errors")) + "."]
    for name in names:
        member = getattr(onward, name)
        told = class_lines(member) if isinstance(member, type) else function_lines(name, member)
        lines += ["", f"## {name}", "", *told]
    for kind in TAKEN_AND_RETURNED:
        lines += ["", f"## {kind.__name__}", "", *class_lines(kind)]
    return "\n".join([*lines, *_error_lines()]) + "\n"


def function_lines(name: str, function: Any) -> Iterator[str]:
    """What the page says of a function."""
    mark = "async " if inspect.iscoroutinefunction(function) else ""
    yield from (f"`{mark}{name}{_signature(function)}`", "")
    yield _doc(function, name)


def class_lines(kind: type) -> Iterator[str]:
    """What the page says of a class; MissingDocstring names what says nothing of itself."""
    yield _doc(kind, kind.__name__)
    if issubclass(kind, enum.Enum):
        yield ""
        yield "Members: " + ", ".join(f"`{member.name}` (`{member.value}`)" for member in kind) + "."
        return
    fields = list(_fields(kind))
    if fields:
        yield from ("", "| field | type | default |", "|---|---|---|", *fields)
    elif "__init__" in _own(kind) and kind.__name__ not in NOT_MADE:
        yield from ("", f"`{kind.__name__}{_signature(kind.__init__)}`")
        about = inspect.getdoc(_own(kind)["__init__"])
        if about:
            yield from ("", _prose(about))
    for name, member in sorted(_own(kind).items(), key=_place):
        if not name.startswith("_") and f"{kind.__name__}.{name}" not in INTERNAL:
            yield from _member_lines(kind, name, member)


def _member_lines(kind: type, name: str, member: Any) -> Iterator[str]:
    where = f"{kind.__name__}.{name}"
    if isinstance(member, property):
        yield from ("", f"### `{where}`", "")
        yield f"`{_annotation(member.fget, 'return')}`. {_doc(member, where)}"
    elif isinstance(member, FunctionType | classmethod | staticmethod):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        mark = "async " if is_async else ""
        yield from ("", f"### `{where}`", "", f"`{mark}{name}{_signature(function)}`", "")
        yield _doc(function, where)


def _own(kind: type) -> dict[str, Any]:
    """What a class has from our own classes; what a subclass says counts."""
    found: dict[str, Any] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith("onward."):
            found.update(one.__dict__)
    return found


def _place(item: tuple[str, Any]) -> tuple[str, int]:
    """Members in the order in which they are written, file by file."""
    member = item[1]
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


def _fields(kind: type) -> Iterator[str]:
    """The fields of a record, as rows of a table."""
    if issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield _row(kind, field.name, _default(field.default, field.required, msgspec.NODEFAULT))
    elif is_typeddict(kind):
        for name in kind.__annotations__:
            yield _row(kind, name, "may be left out")
    elif dataclasses.is_dataclass(kind) and kind.__dataclass_params__.init:  # type: ignore[attr-defined]
        for one in dataclasses.fields(kind):
            is_required = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
            yield _row(kind, one.name, _default(one.default, is_required, dataclasses.MISSING))


def _row(kind: type, name: str, default: str) -> str:
    found = next(notes[name] for one in kind.__mro__ if name in (notes := inspect.get_annotations(one)))
    found = getattr(found, "__forward_arg__", found)
    kind_of = _plain(str(found)).replace("|", "\\|")
    return f"| `{name}` | `{kind_of}` | {default} |"


def _default(default: object, required: bool, nothing: object) -> str:
    if required:
        return "required"
    return "empty" if default is nothing else f"`{_value(default)}`"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        one if one.default is one.empty else one.replace(default=_Shown(one.default))
        for one in signature.parameters.values()
        if one.name not in ("self", "cls")
    ]
    return _plain(str(signature.replace(parameters=parameters))).replace("'", "")


class _Shown:
    """A default as it is written, whatever its repr has of this process."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return _value(self._value)


def _value(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if callable(value):
        return "…"
    return re.sub(r"'", '"', repr(value))


def _annotation(function: Any, name: str) -> str:
    return _plain(str(function.__annotations__.get(name, "Any")))


def _plain(text: str) -> str:
    return re.sub(r"\b(builtins|typing|collections\.abc)\.", "", text)


def _doc(what: Any, name: str) -> str:
    found = inspect.getdoc(what)
    if not found:
        raise MissingDocstring(f"{name} has no docstring")
    return _prose(found)


def _prose(text: str) -> str:
    """A docstring as paragraphs: its line breaks mean nothing."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _error_lines() -> Iterator[str]:
    yield from ("", "## Errors", "", "Each is an `OnwardError`, and its message is a sentence for a person.")
    yield from ("", "| error | is a | attributes | meaning |", "|---|---|---|---|")
    for name in re.findall(r"^ *- (\w+)", errors.__doc__ or "", re.MULTILINE):  # in the order of the tree
        kind = getattr(errors, name)
        above = ", ".join(base.__name__ for base in kind.__bases__)
        has = ", ".join(f"`{attribute}`" for attribute in _attributes(kind))
        yield f"| `{name}` | {above} | {has} | {_doc(kind, name).splitlines()[0]} |"


def _attributes(kind: type) -> list[str]:
    """What `__init__` sets on an error."""
    init = kind.__dict__.get("__init__")
    if init is None:
        return []
    found: list[str] = []
    for line in inspect.getsource(init).splitlines():
        targets, equals, _ = line.partition(" = ")
        if equals:
            found += re.findall(r"self\.(\w+)", targets)
    return found

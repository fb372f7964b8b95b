"""The language of edge conditions: `outcome=success && context.tests != "none"`.

It is deliberately small: a condition cannot call, index or compute anything. Values are compared as strings,
exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from onward.errors import ConditionError
from onward.model.context import as_words
from onward.pipeline.source import unescaped

__all__ = ["Clause", "Condition", "ConditionError", "parse_condition", "resolver"]

Resolve = Callable[[str], str]

CLAUSES_MAX = 100
SHORT = 100
"""Conditions up to this length are cached."""

_SPACE = re.compile(r"\s*+")
_KEY = re.compile(r"[A-Za-z_][\w-]*+(?:\.[\w-]++)*+", re.ASCII)
_OPERATOR = re.compile(r"!=|=")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_BARE = re.compile(r"[\w.:/+@%-]++")
_FOREIGN = {
    "||": "OR is not supported; write one edge per alternative",
    "==": "write a single '='",
    "!": "NOT is not supported; write key!=value",
    "<": "numbers cannot be compared; only = and != are supported",
    ">": "numbers cannot be compared; only = and != are supported",
    "(": "parentheses are not supported",
    "&": "clauses are joined by '&&'",
}
_FALSE = ("", "false", "0")


class Clause(msgspec.Struct, frozen=True):
    """One comparison; with an empty operator, whether the key's value is true."""

    key: str
    operator: str
    literal: str

    def holds(self, resolve: Resolve) -> bool:
        """Whether the clause is true for the values that `resolve` gives."""
        value = resolve(self.key)
        if self.operator == "=":
            return value == self.literal
        if self.operator == "!=":
            return value != self.literal
        return value not in _FALSE


class Condition(msgspec.Struct, frozen=True):
    """Clauses that must all hold; without clauses it always holds."""

    clauses: tuple[Clause, ...] = ()

    def holds(self, resolve: Resolve) -> bool:
        """Whether every clause is true for the values that `resolve` gives."""
        return all(clause.holds(resolve) for clause in self.clauses)


def parse_condition(text: str) -> Condition:
    """Read a condition; ConditionError says what is wrong and at which character."""
    return _short(text) if len(text) <= SHORT else _parsed(text)


@lru_cache(maxsize=1_000)
def _short(text: str) -> Condition:
    # Most edges of a pipeline have one of a few conditions.
    return _parsed(text)


def _parsed(text: str) -> Condition:
    clauses: list[Clause] = []
    place = _skip(text, 0)
    while place < len(text):
        if not text.startswith("&&", place):
            clause, place = _clause(text, place)
            clauses.append(clause)
            if len(clauses) > CLAUSES_MAX:
                raise ConditionError(f"there are more than {CLAUSES_MAX} clauses", place)
            if place < len(text) and not text.startswith("&&", place):
                raise _unexpected(text, place, "'&&' or the end of the condition")
        # An empty clause is ignored, so '&&' may also come first, last or twice.
        place = _skip(text, place + 2)
    return Condition(tuple(clauses))


def _clause(text: str, place: int) -> tuple[Clause, int]:
    key = _KEY.match(text, place)
    if key is None:
        raise _unexpected(text, place, "a key such as outcome, preferred_label or context.name")
    place = _skip(text, key.end())
    operator = _OPERATOR.match(text, place)
    if operator is None:
        return Clause(key[0], "", ""), place
    place = _skip(text, operator.end())
    literal, place = _literal(text, place)
    return Clause(key[0], operator[0], literal), _skip(text, place)


def _literal(text: str, place: int) -> tuple[str, int]:
    if match := _QUOTED.match(text, place):
        return unescaped(match[1]), match.end()
    if match := _BARE.match(text, place):
        return match[0], match.end()
    if text.startswith('"', place):
        raise ConditionError("the string that starts here is never closed", place)
    if place == len(text) or text.startswith("&&", place):
        raise ConditionError('a value is missing; write "" for the empty string', place)
    raise _unexpected(text, place, "a value")


def _unexpected(text: str, place: int, expected: str) -> ConditionError:
    for sign, hint in _FOREIGN.items():
        if text.startswith(sign, place) or (sign == "==" and text.startswith("==", place - 1)):
            return ConditionError(f"{sign!r} is not allowed: {hint}", place)
    if word := _BARE.match(text, place):
        return ConditionError(f"expected {expected}, found {word[0]!r}; quote a value that has spaces", place)
    return ConditionError(f"expected {expected}, found {text[place]!r}", place)


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else len(text)


def resolver(outcome: str, preferred_label: str, context: Mapping[str, Any]) -> Resolve:
    """Gives the values of a condition's keys after a step: its outcome, its label, and the run's context."""

    def resolve(key: str) -> str:
        if key == "outcome":
            return outcome.lower()
        if key == "preferred_label":
            return preferred_label
        if key in context:
            return as_words(context[key])
        # Handlers may store a key with or without the prefix; the prefixed one was tried first.
        return as_words(context.get(key[8:])) if key.startswith("context.") else ""

    return resolve

"""Every kind of event has a meaning for every reader of a log, or is left out on purpose."""

from __future__ import annotations

import ast
import importlib

import pytest

from onward.model.catalogue import CATALOGUE
from onward.model.events import Event
from onward.read.log.kinds import LEFT_OUT, step_of
from tests.shape.tree import modules

KINDS = {kind.__name__: kind for kind in CATALOGUE}
ROOMS = ("read", "receipts", "draw", "observe", "cli", "engine.files", "operations")
"""Where logs are told, drawn and counted. The engine's own modules write events, or look for one kind."""
A_READER_FROM = 3


def concrete(kind: type[Event]) -> set[type[Event]]:
    below = {found for one in kind.__subclasses__() for found in concrete(one)}
    return below or {kind}


def handled(module: str) -> set[str]:
    """The kinds that a module names in its code: it imports no other."""
    found = vars(importlib.import_module(f"onward.{module}"))
    return {name for name, kind in KINDS.items() if found.get(name) is kind}


def unheard(module: str, kinds: set[str]) -> set[str]:
    return kinds - handled(module) - LEFT_OUT[module]


def test_the_catalogue_has_every_event() -> None:
    in_package = {kind for kind in concrete(Event) if kind.__module__.startswith("onward.model.")}
    assert in_package == set(CATALOGUE)


@pytest.mark.parametrize("module", LEFT_OUT)
def test_a_reader_handles_every_kind_or_leaves_it_out(module: str) -> None:
    assert unheard(module, set(KINDS)) == set()
    assert handled(module) & LEFT_OUT[module] == set()
    assert set(KINDS) >= LEFT_OUT[module]


@pytest.mark.parametrize("module", LEFT_OUT)
def test_a_new_kind_is_missed_by_every_reader(module: str) -> None:
    assert unheard(module, {*KINDS, "StepImagined"}) == {"StepImagined"}


def test_whoever_reads_several_kinds_is_in_the_table() -> None:
    readers, rooms = set(), {kind.__module__ for kind in CATALOGUE}
    for module in modules():
        if not module.name.startswith(ROOMS) or not any(room in module.text for room in rooms):
            continue
        named = {
            alias.name
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ImportFrom) and node.module in rooms
            for alias in node.names
        }
        if len(named & set(KINDS)) >= A_READER_FROM:
            readers.add(module.name)
    assert readers <= set(LEFT_OUT)


def test_every_event_with_a_step_or_gate_of_its_own_names_it() -> None:
    """The others that have such a field name the node of a goal gate, or where a run stopped or goes on."""
    fields = {name for name, kind in KINDS.items() if {"step", "gate"} & set(kind.__struct_fields__)}
    assert fields - handled("read.log.kinds") == {"GoalRedirected", "RunFailed", "RunResumed"}
    assert step_of(KINDS["GateWithdrawn"](gate="ask#1")) == "ask#1"
    assert step_of(KINDS["CancelRequested"](by="me")) is None

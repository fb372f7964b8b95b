"""Every kind of event has a meaning for every reader of a log, or is left out on purpose."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping

import pytest

from onward.model.catalogue import CATALOGUE
from onward.model.events import Event
from onward.read import log
from onward.read.log import step_of
from tests.shape.tree import modules

KINDS = {kind.__name__: kind for kind in CATALOGUE}
ROOMS = ("read", "receipts", "draw", "observe", "cli", "engine.files", "operations")
"""Where logs are told, drawn and counted. The engine's own modules write events, or look for one kind."""
A_READER_FROM = 3


def _names(*kinds: str) -> frozenset[str]:
    return frozenset(name for some in kinds for name in some.split())


_CHANGES = "PipelineChanged WorkdirChanged StepRouted GoalRedirected"
_REQUESTS = "PauseRequested CancelRequested SteeringGiven RunDismissed"
_LIFE = "RunCreated RunForked RunClaimed RunResumed RunCompleted"
_STOPS = "RunPaused RunInterrupted RunFailed RunCancelled"
_HANDED_BACK = "RunWaiting RunQueued"
_GATES = "GateOpened GateDecided GateWithdrawn"
_BRANCHES = "ParallelStarted BranchFinished"
_CALLS = "CallStarted CallFinished CallLost HoldsLifted LimitWarned"

LEFT_OUT: Mapping[str, frozenset[str]] = {
    "read.log": _names(_CHANGES, _REQUESTS, _HANDED_BACK, "CallStarted HoldsLifted LimitWarned RunCompleted"),
    "read.past": _names(
        *(_REQUESTS, _HANDED_BACK, _CALLS, "RunCreated RunCompleted RunCancelled GateOpened GateWithdrawn"),
        "AttemptHeld",
    ),
    "read.dialect_events": _names(
        _CHANGES, _REQUESTS, _HANDED_BACK, _CALLS, "RunClaimed AttemptInterrupted AttemptHeld GateWithdrawn"
    ),
    "receipts.trail": _names(
        *("StepRouted GoalRedirected", _REQUESTS, _STOPS, _HANDED_BACK, _BRANCHES),
        *("RunForked RunClaimed RunResumed RunCompleted", "StepStarted GateOpened", _CALLS),
    ),
    "draw.states": _names(
        *("PipelineChanged WorkdirChanged", _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES),
        *("AttemptFailed AttemptInterrupted BranchFinished", _CALLS, "AttemptHeld"),
    ),
    "cli.print.progress": _names(
        *("PipelineChanged WorkdirChanged", _REQUESTS, _STOPS, _HANDED_BACK),
        *("RunForked RunClaimed RunResumed GateWithdrawn", "CallLost HoldsLifted AttemptHeld"),
    ),
    "operations.local.operations": _names(
        *("GoalRedirected", _REQUESTS, _HANDED_BACK, _BRANCHES, "RunPaused RunInterrupted"),
        *(_CALLS, "AttemptHeld"),
        *("RunCreated RunForked RunClaimed RunResumed", "AttemptFailed AttemptInterrupted GateWithdrawn"),
    ),
    "observe.log": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _BRANCHES, "GateDecided GateWithdrawn"),
        *(_CALLS, "AttemptHeld"),
    ),
    "observe.metrics": _names(
        *(_CHANGES, _REQUESTS, _STOPS, _HANDED_BACK, _GATES, _BRANCHES),
        *("RunCreated RunForked RunResumed RunCompleted", "StepStarted StepFinished"),
        "CallStarted HoldsLifted LimitWarned",
    ),
    "operations.here.directories": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES, _BRANCHES, "AttemptInterrupted"),
        *(_CALLS, "AttemptHeld"),
    ),
    "read.step": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES, _BRANCHES),
        "AttemptFailed AttemptInterrupted AttemptHeld HoldsLifted LimitWarned",
    ),
    "read.verify": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES, _BRANCHES, "StepStarted"),
        "AttemptFailed AttemptInterrupted AttemptHeld HoldsLifted LimitWarned",
    ),
    "engine.files.receipts": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES, _BRANCHES, "AttemptInterrupted"),
        *(_CALLS, "AttemptHeld"),
    ),
}
"""For each reader, by its module: the kinds that it ignores. It handles every other kind.

If receipts and drawings need something of a kind they ignore, they get it from the projection.
"""


def concrete(kind: type[Event]) -> set[type[Event]]:
    below = {found for one in kind.__subclasses__() for found in concrete(one)}
    return below or {kind}


def handled(module: str) -> set[str]:
    """The kinds that a module names in its code: it imports no other."""
    if module == "read.log":  # it has two tables: what happened, and which step an event is about
        return {kind.__name__ for kind in log._HAPPENED}
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
    assert fields - {kind.__name__ for kind in log._NAMED_BY} == {"GoalRedirected", "RunFailed", "RunResumed"}
    assert step_of(KINDS["GateWithdrawn"](gate="ask#1")) == "ask#1"
    assert step_of(KINDS["CancelRequested"](by="me")) is None

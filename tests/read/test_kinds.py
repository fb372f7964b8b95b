"""Who tells of which kind of event: every reader of a log handles a kind, or ignores it on purpose."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set

import pytest

from onward.machine.catalogue import CATALOGUE
from onward.read import log
from onward.read.log import step_of
from tests.shape.tree import modules

KINDS = {kind.__name__: kind for kind in CATALOGUE}
ROOMS = ("read", "receipts", "draw", "observe", "cli", "engine.files", "operations")
"""Where logs are told, drawn and counted. The engine's own modules write events, or look for one kind."""
A_READER_FROM = 3


LOG, PAST, DIALECT = "read.log", "read.past", "read.dialect_events"
STEP, VERIFY, DRAWN = "read.step", "operations.here.verify", "draw.scene"
TRAIL, RECEIPTS, DIRECTORIES = "receipts.trail", "engine.files.receipts", "operations.here.directories"
PROGRESS, LOCAL = "cli.print.progress", "operations.local.operations"
LOGGED, METRICS = "observe.log", "observe.metrics"
SPANS, SPEECH = "observe.spans", "cli.print.speech"

READERS: Mapping[str, Set[str]] = {
    "RunCreated": {LOG, DIALECT, TRAIL, PROGRESS},
    "RunForked": {LOG, PAST, DIALECT},
    "RunClaimed": {SPANS, LOG, PAST, METRICS},
    "PipelineChanged": {PAST, TRAIL, LOCAL},
    "WorkdirChanged": {PAST, TRAIL, LOCAL},
    "StepStarted": {LOG, PAST, DIALECT, STEP, RECEIPTS, DRAWN, PROGRESS, LOCAL, DIRECTORIES, LOGGED},
    "AttemptFailed": {
        SPEECH,
        SPANS,
        LOG,
        PAST,
        DIALECT,
        TRAIL,
        RECEIPTS,
        PROGRESS,
        DIRECTORIES,
        LOGGED,
        METRICS,
    },
    "AttemptInterrupted": {SPEECH, SPANS, LOG, PAST, TRAIL, PROGRESS, LOGGED, METRICS},
    "StepFinished": {
        SPANS,
        LOG,
        PAST,
        DIALECT,
        STEP,
        VERIFY,
        TRAIL,
        RECEIPTS,
        DRAWN,
        PROGRESS,
        LOCAL,
        DIRECTORIES,
        LOGGED,
    },
    "CallStarted": {SPEECH, SPANS, STEP, VERIFY, PROGRESS},
    "CallFinished": {SPEECH, SPANS, LOG, STEP, VERIFY, PROGRESS, METRICS},
    "CallLost": {SPANS, LOG, STEP, VERIFY, METRICS},
    "AttemptHeld": {LOG, TRAIL, METRICS},
    "HoldsLifted": set(),
    "LimitWarned": {PROGRESS},
    "ParallelStarted": {LOG, PAST, DIALECT, DRAWN, PROGRESS},
    "BranchFinished": {LOG, PAST, DIALECT, PROGRESS},
    "StepRouted": {PAST, DRAWN, PROGRESS, LOCAL},
    "GoalRedirected": {PAST, DRAWN, PROGRESS},
    "GateOpened": {LOG, DIALECT, PROGRESS, LOCAL, LOGGED},
    "GateDecided": {LOG, PAST, DIALECT, TRAIL, PROGRESS, LOCAL},
    "GateWithdrawn": {LOG, TRAIL},
    "PauseRequested": set(),
    "CancelRequested": set(),
    "SteeringGiven": set(),
    "RunWaiting": {SPANS},
    "RunQueued": {SPANS},
    "RunPaused": {SPANS, LOG, PAST, DIALECT},
    "RunInterrupted": {SPANS, LOG, PAST, DIALECT},
    "RunFailed": {SPANS, LOG, PAST, DIALECT, LOCAL},
    "RunResumed": {LOG, PAST, DIALECT},
    "RunDismissed": set(),
    "RunCompleted": {SPANS, DIALECT, PROGRESS, LOCAL},
    "RunCancelled": {SPANS, LOG, DIALECT, LOCAL},
}
"""For each kind, the modules that tell of it; every other reader ignores it on purpose.

If receipts and drawings need something of a kind they ignore, they get it from the projection.
"""


def named_in(tree: ast.Module) -> set[str]:
    """The kinds that a module names in its code: as they are, or through `events`."""
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return words & set(KINDS)


def handled(module: str) -> set[str]:
    if module == "read.log":  # it has two tables: what happened, and which step an event is about
        return {kind.__name__ for kind in log._HAPPENED}
    (found,) = (one for one in modules() if one.name == module)
    return named_in(found.tree)


def test_whether_anybody_tells_of_a_kind_was_decided() -> None:
    assert set(READERS) == set(KINDS)


@pytest.mark.parametrize("module", sorted(set().union(*READERS.values())))
def test_a_reader_handles_the_kinds_that_it_is_to_tell_of(module: str) -> None:
    assert handled(module) == {kind for kind, readers in READERS.items() if module in readers}


def test_whoever_reads_several_kinds_is_in_the_table() -> None:
    readers = {
        module.name
        for module in modules()
        if module.name.startswith(ROOMS) and len(named_in(module.tree)) >= A_READER_FROM
    }
    assert readers <= set().union(*READERS.values())


def test_every_event_with_a_step_or_gate_of_its_own_names_it() -> None:
    """The others that have such a field name the node of a goal gate, or where a run stopped or goes on."""
    fields = {name for name, kind in KINDS.items() if {"step", "gate"} & set(kind.__struct_fields__)}
    about = {kind.__name__ for kind, row in CATALOGUE.items() if row.about}
    assert fields - about == {"GoalRedirected", "RunFailed", "RunResumed"}
    assert step_of(KINDS["GateWithdrawn"](gate="ask#1")) == "ask#1"
    assert step_of(KINDS["CancelRequested"](by="me")) is None

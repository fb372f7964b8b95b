"""The catalogue: every kind of event has a row, and each row fits its kind."""

from __future__ import annotations

import pytest

from onward.machine.catalogue import CATALOGUE, CHECKPOINTS, Ends, Writer
from onward.model.events import Event, RunCreated, StepFinished, event_kinds


def test_every_kind_of_event_has_a_row() -> None:
    assert set(CATALOGUE) == set(event_kinds())


@pytest.mark.parametrize("kind", CATALOGUE, ids=lambda kind: kind.__name__)
def test_a_row_names_fields_that_its_kind_has(kind: type[Event]) -> None:
    row = CATALOGUE[kind]
    needed = {Ends.STEP: {"step"}, Ends.BRANCH: {"branch"}}.get(row.ends, set())
    assert {*row.said, *needed, *filter(None, [row.about])} <= {*kind.__struct_fields__}


def test_only_the_event_that_creates_a_run_has_nothing_to_fold() -> None:
    assert [kind for kind, row in CATALOGUE.items() if row.fold is None] == [RunCreated]
    assert [kind for kind, row in CATALOGUE.items() if None in row.moves] == [RunCreated]


def test_a_run_has_a_checkpoint_from_its_creation_on() -> None:
    """O4."""
    assert set(CHECKPOINTS) == {RunCreated, StepFinished}


def test_work_is_written_by_the_holder() -> None:
    """Design §2: two kinds of writer; what only a holder may write needs its owner and token."""
    held = {kind.__name__ for kind, row in CATALOGUE.items() if row.writer is Writer.HOLDER}
    assert held == {
        "StepStarted",
        "AttemptFailed",
        "CallStarted",
        "LimitWarned",
        "AttemptHeld",
        "ParallelStarted",
        "BranchFinished",
        "StepRouted",
        "GoalRedirected",
        "GateOpened",
        "RunWaiting",
        "RunCompleted",
    }

"""Events: closed schemas that come back from JSON as they went in."""

from __future__ import annotations

import msgspec
import pytest

from onward.model.catalogue import CATALOGUE, CHECKPOINTS, Writer
from onward.model.events import Event, RunCreated, RunPaused, StepFinished


def test_the_catalogue_lists_every_kind_of_event() -> None:
    """A kind that is missing could be written and never read again."""

    def kinds(base: type[Event]) -> set[type[Event]]:
        below = set(base.__subclasses__())
        return below.union(*(kinds(kind) for kind in below))

    abstract = {"ContextEvent"}
    assert {kind for kind in kinds(Event) if kind.__name__ not in abstract} == set(CATALOGUE)


def test_the_kind_of_an_event_is_its_name() -> None:
    assert RunPaused(reason="signal").kind == "RunPaused"
    assert len({kind.__name__ for kind in CATALOGUE}) == len(CATALOGUE)


@pytest.mark.parametrize("kind", CATALOGUE, ids=lambda kind: kind.__name__)
def test_a_schema_is_closed_and_has_a_version(kind: type[Event]) -> None:
    """A field that the program does not know is refused, never dropped."""
    assert kind.VERSION >= 1
    assert kind.__doc__
    assert kind.__struct_config__.forbid_unknown_fields
    assert kind.__struct_config__.frozen
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"no such field": 1}', type=kind)


def test_a_run_has_a_checkpoint_from_its_creation_on() -> None:
    """O4."""
    assert set(CHECKPOINTS) == {RunCreated, StepFinished}


def test_work_is_written_by_the_holder() -> None:
    """Design §2: two kinds of writer; what only a holder may write needs its owner and token."""
    held = {kind.__name__ for kind, writer in CATALOGUE.items() if writer is Writer.HOLDER}
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

"""Events: closed schemas that come back from JSON as they went in."""

from __future__ import annotations

import msgspec
import pytest

from onward.model import call, events, gate
from onward.model.events import ContextEvent, Event, RunPaused, event_kinds


def test_every_class_of_an_event_is_a_kind_but_those_that_others_extend() -> None:
    """A kind that is missing could be written and never read again."""
    rooms = (events, call, gate)
    classes = {one for room in rooms for one in vars(room).values() if isinstance(one, type)}
    found = {one for one in classes if issubclass(one, Event)} - {Event, ContextEvent}
    assert set(event_kinds()) == found


def test_the_kind_of_an_event_is_its_name() -> None:
    assert RunPaused(reason="signal").kind == "RunPaused"
    assert len({kind.__name__ for kind in event_kinds()}) == len(event_kinds())


@pytest.mark.parametrize("kind", event_kinds(), ids=lambda kind: kind.__name__)
def test_a_schema_is_closed_and_has_a_version(kind: type[Event]) -> None:
    """A field that the program does not know is refused, never dropped."""
    assert kind.VERSION >= 1
    assert kind.__doc__
    assert kind.__struct_config__.forbid_unknown_fields
    assert kind.__struct_config__.frozen
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"no such field": 1}', type=kind)

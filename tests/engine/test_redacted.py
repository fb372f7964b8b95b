"""Every text of an event is either what somebody says, and redacted, or the name of something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec

from onward.engine.redacted import NAMING, SAID, redacted_events
from onward.model.catalogue import CATALOGUE
from onward.model.events import RunCreated, SteeringGiven
from onward.model.gate import Choice, GateDecided
from onward.redact.redactor import NOTHING_SECRET, Redactor


def texts_of(kind: type) -> Iterator[str]:
    """The fields of a struct, and of those in it, that are no mere numbers."""
    for name, hint in get_type_hints(kind).items():
        if name.isupper():
            continue
        kinds = [*_kinds(hint)]
        if any(one in (str, bytes, Any) for one in kinds):
            yield name
        for one in kinds:
            if isinstance(one, type) and issubclass(one, msgspec.Struct):
                yield name
                yield from texts_of(one)


def _kinds(hint: Any) -> Iterator[Any]:
    yield hint
    for inside in get_args(hint):
        yield from _kinds(inside)


def test_every_text_of_every_event_was_decided_about() -> None:
    found = {name for kind in CATALOGUE for name in texts_of(kind)}
    assert found - SAID - NAMING == set()
    assert (SAID | NAMING) - found == set()
    assert not SAID & NAMING


def test_what_is_said_is_redacted_and_what_names_something_is_not() -> None:
    redactor, secret = Redactor({"KEY": "0123456789"}), "0123456789"
    choice = Choice(key=secret, label=f"is {secret}", to=secret)
    events = [
        GateDecided(gate=secret, choice=choice, by=secret, text=secret),
        SteeringGiven(text=secret, by="user"),
        RunCreated(
            pipeline=secret,
            pipeline_hash="h",
            start_node=secret,
            context={"a": [secret]},
            simulation={secret: 1},
        ),
    ]
    mark = "[redacted KEY]"
    decided, steered, created = redacted_events(redactor, events)
    clean = Choice(key=secret, label=f"is {mark}", to=secret)
    assert decided == GateDecided(gate=secret, choice=clean, by=mark, text=mark)
    assert steered == SteeringGiven(text=mark, by="user")
    assert isinstance(created, RunCreated)
    assert (created.pipeline, created.start_node) == (secret, secret)
    assert (created.context, created.simulation) == ({"a": [mark]}, {mark: 1})


def test_without_secrets_the_events_are_the_same() -> None:
    events = [SteeringGiven(text=f"ghp_{'a1B2' * 9}", by="user")]
    assert redacted_events(NOTHING_SECRET, events) is events
    assert redacted_events(Redactor(), [SteeringGiven(text="go", by="user")])[0] == SteeringGiven(
        text="go", by="user"
    )

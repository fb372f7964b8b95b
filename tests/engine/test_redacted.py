"""Every text of an event is either what somebody says, and redacted, or the name of something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from onward.engine.log import SAID, _value, redacted_events
from onward.model.events import (
    AttemptInterrupted,
    RunCreated,
    RunningCall,
    SteeringGiven,
    Tree,
    event_kinds,
)
from onward.model.gate import Choice, GateDecided
from onward.redact.redactor import NOTHING_SECRET, Redactor

NAMING = {
    *("action", "after", "artifacts", "before", "blobs", "branch", "branches", "call"),
    *("charged_to", "chat", "child", "choices", "commit", "contents", "default", "definition"),
    *("degraded_from", "ended_at", "exclusive_key", "failure", "fidelity", "from_node", "gate", "gates"),
    *("hash", "head", "join", "key", "limit", "managed_by", "measure", "message", "mode", "model"),
    *("needs", "next", "node", "nodes", "on_owner_loss", "on_timeout", "parent", "parent_hash"),
    *("path", "pipeline", "pipeline_hash", "plan", "policy", "project", "question", "ref", "repeats"),
    *("repository", "request_id", "reserved", "response_blob", "restart_of", "restarted_as", "run", "runs"),
    *("said", "scope", "scopes", "start", "start_node", "status", "step", "stop", "stream"),
    *("streamed", "tags", "thread", "to", "type", "usage", "value_blob", "variables", "version"),
    *("workdir", "worker", "workspace"),
    *(
        "patches",
        "inputs",
    ),  # of a flow: names that its code gives, and the hash of what a step is called with
    "Artifact.name",  # its id
    "Transition.reason",  # a word of the engine
}
"""The fields that name something, in whatever struct they are; or those of one struct."""


def texts_of(kind: type) -> Iterator[tuple[type, str]]:
    """The fields of a struct, and of those in it, that are no mere numbers."""
    for name, hint in get_type_hints(kind).items():
        if name.isupper():
            continue
        kinds = [*_kinds(hint)]
        parts = [one for one in kinds if isinstance(one, type) and issubclass(one, msgspec.Struct)]
        if parts or any(one in (str, bytes, Any) for one in kinds):
            yield kind, name
        for part in parts:
            yield from texts_of(part)


def _kinds(hint: Any) -> Iterator[Any]:
    yield hint
    for inside in get_args(hint):
        yield from _kinds(inside)


TEXTS = {text for kind in event_kinds() for text in texts_of(kind)}


def test_every_text_of_every_event_was_decided_about() -> None:
    """A new text of an event is said, or its name is an identifier: nothing is left out by oversight."""
    left = {(kind, name) for kind, name in TEXTS if name not in SAID.get(kind, ())}
    undecided = {f"{kind.__name__}.{name}" for kind, name in left if name not in NAMING}
    assert undecided == {name for name in NAMING if "." in name}
    known = {name for _, name in TEXTS} | undecided
    assert known >= NAMING
    assert not NAMING & {name for names in SAID.values() for name in names}


def test_every_part_of_what_is_said_has_its_own_fields_that_are_said() -> None:
    """Of a part that is not in the table, all fields would be redacted."""
    for kind, said in SAID.items():
        hints = get_type_hints(kind)
        parts = {one for name in said for one in _kinds(hints[name]) if isinstance(one, type)}
        assert {part for part in parts if issubclass(part, msgspec.Struct)} <= SAID.keys()


def test_of_a_part_that_was_forgotten_all_is_redacted() -> None:
    tree = Tree(head="0123456789", commit="c")
    assert _value(Redactor({"KEY": "0123456789"}), tree) == Tree(head="[redacted KEY]", commit="c")


def test_what_is_said_is_redacted_and_what_names_something_is_not() -> None:
    redactor, secret = Redactor({"KEY": "0123456789"}), "0123456789"
    choice = Choice(key=secret, label=f"is {secret}", to=secret)
    running = RunningCall(call=secret, number=1, where="thread 1", about=f"pay {secret}", inputs=secret)
    events = [
        GateDecided(gate=secret, choice=choice, by=secret, text=secret),
        SteeringGiven(text=secret, by="user"),
        AttemptInterrupted(step="s#1", attempt=1, why="", running=(running,)),
        RunCreated(
            pipeline=secret,
            pipeline_hash="h",
            start_node=secret,
            context={"a": [secret]},
            simulation={secret: 1},
        ),
    ]
    mark = "[redacted KEY]"
    decided, steered, interrupted, created = redacted_events(redactor, events)
    clean = Choice(key=secret, label=f"is {mark}", to=secret)
    assert decided == GateDecided(gate=secret, choice=clean, by=mark, text=mark)
    assert steered == SteeringGiven(text=mark, by="user")
    assert isinstance(interrupted, AttemptInterrupted)
    assert interrupted.running == (replace(running, about=f"pay {mark}"),)
    assert isinstance(created, RunCreated)
    assert (created.pipeline, created.start_node) == (secret, secret)
    assert (created.context, created.simulation) == ({"a": [mark]}, {mark: 1})


def test_without_secrets_the_events_are_the_same() -> None:
    events = [SteeringGiven(text=f"ghp_{'a1B2' * 9}", by="user")]
    assert redacted_events(NOTHING_SECRET, events) is events
    assert redacted_events(Redactor(), [SteeringGiven(text="go", by="user")])[0] == SteeringGiven(
        text="go", by="user"
    )

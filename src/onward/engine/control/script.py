"""Whether a simulation script fits a pipeline: every entry is for a node that can be played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches

import msgspec

from onward.engine.control.sources import beside
from onward.engine.managed.settings import is_steering
from onward.errors import InvalidInput, InvalidPipeline, InvalidScript
from onward.handlers.simulate import check_fields, check_script
from onward.machine.definition import AGENT, EXIT, GATE, MANAGER, START, TOOL, Definition, is_simulated
from onward.model.run import Simulation
from onward.pipeline.build import Pipeline

CHILD = "stack.child_dotfile"
Read = Callable[[str], Pipeline]
"""Reads a pipeline from a file."""
_WHY = {
    START: "is the start of the run; nothing is executed there",
    EXIT: "is the exit of the run; nothing is executed there",
    GATE: "is a gate; --answers says who answers it",
    MANAGER: "manages another run; write entries for the nodes of that pipeline",
}


def check_script_fits(pipeline: Pipeline, definition: Definition, simulation: Simulation, read: Read) -> None:
    """Refuse a script with an entry that no node of the pipeline, or of one that it manages, would play."""
    script = check_script(simulation.script)
    if not script:
        return
    cast = cast_of(pipeline, definition, read)
    for node, entries in script.items():
        kinds = cast.kinds.get(node)
        if kinds is None:
            if cast.is_whole:
                raise _unknown(node, cast)
            continue
        played = {kind for kind in kinds if is_simulated(simulation, kind)}
        if not played:
            raise InvalidScript((node,), _why_not(kinds, simulation))
        for number, entry in enumerate(entries):
            if len(played) == 1:
                check_fields(entry, (node, number), is_tool=played == {TOOL})


def _unknown(node: str, cast: Cast) -> InvalidScript:
    near = get_close_matches(node, cast.kinds, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return InvalidScript((node,), f"there is no such node{hint}")


def _why_not(kinds: set[str], simulation: Simulation) -> str:
    kind = min(kinds)
    if is_simulated(Simulation(script=simulation.script), kind):
        return "is executed under --real-tools; leave it out of the script"
    return _WHY.get(kind, f"is a {kind} node, which executes nothing")


class Cast(msgspec.Struct):
    """The nodes of a pipeline and of those that it manages, with their kinds.

    A manager that asks a model for instructions counts as an agent. `is_whole`: every file could be read.
    """

    kinds: dict[str, set[str]] = msgspec.field(default_factory=dict)
    is_whole: bool = True


def cast_of(pipeline: Pipeline, definition: Definition, read: Read) -> Cast:
    """All nodes that a simulation of the pipeline may come to."""
    cast = Cast()
    _add(cast, pipeline, definition, read, {pipeline.path})
    return cast


def _add(cast: Cast, pipeline: Pipeline, definition: Definition, read: Read, known: set[str | None]) -> None:
    for node_id, node in definition.graph.nodes.items():
        kind = definition.kind(node_id)
        is_asking = kind == MANAGER and is_steering(node)
        cast.kinds.setdefault(node_id, set()).add(AGENT if is_asking else kind)
    for path in _children(pipeline, definition):
        if path in known:
            continue
        known.add(path)
        try:
            child = read(path)
        except (InvalidInput, InvalidPipeline):
            cast.is_whole = False  # it may be written while the run runs
            continue
        _add(cast, child, Definition(child.graph), read, known)


def _children(pipeline: Pipeline, definition: Definition) -> Iterator[str]:
    for node in definition.managers:
        written = node.text(CHILD) or definition.graph.text(CHILD)
        if written:
            yield beside(pipeline.path, written)

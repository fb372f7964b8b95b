"""The rule about values in texts: a name that nothing can set is a typo."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches

from onward.model.context import (
    CONTEXT_PREFIX,
    CURRENT_NODE,
    GRAPH,
    INTERNAL,
    OUTCOME,
    PREFERRED_LABEL,
    references,
)
from onward.pipeline.graph import DEFAULT_KIND, Edge, Graph, Node
from onward.pipeline.rules.rule import Problem, Subject, about

GATE, FAN_IN = "wait.human", "parallel.fan_in"
HUMAN = "human.gate."
RETRIES = f"{INTERNAL}retry_count."
_KNOWN = (
    *("goal", OUTCOME, PREFERRED_LABEL, CURRENT_NODE, "last_stage", "last_response", "tool.output"),
    *(f"{HUMAN}{name}" for name in ("selected", "label", "text", "data")),
    *("parallel.results", "parallel.fan_in.best_id", "parallel.fan_in.best_outcome"),
)
_ALIKE = 0.84
_TEXTS = {
    DEFAULT_KIND: ("prompt", "label"),
    FAN_IN: ("prompt",),
    GATE: ("human.question", "human.show", "prompt", "label"),
}


def value_known(subject: Subject) -> Iterator[Problem]:
    """A text names no value that nothing can set, and none that is nearly one of the engine's."""
    graph = subject.graph
    names = (
        *_KNOWN,
        *(f"{GRAPH}{key}" for key in graph.attrs),
        *(f"{RETRIES}{name}" for name in graph.nodes),
    )
    known = dict.fromkeys(names)
    for owner, key in _texts(graph):
        text = owner.text(key)
        for name, _ in references(text) if "$" in text else ():
            hint = _hint(name, known)
            if hint is not None:
                message = f"{key} of {owner.subject} names {_written(name)}, {hint}"
                yield about(owner, message, key=key, fix=f"for the text itself write ${_written(name)}")


def _texts(graph: Graph) -> Iterator[tuple[Node | Edge, str]]:
    for node in graph.nodes.values():
        for key in _TEXTS.get(node.kind, ()):
            if key in node.attrs:
                yield node, key
        if node.kind == GATE:
            yield from ((edge, "label") for edge in graph.outgoing(node.id) if edge.label)


def _hint(name: str, known: Collection[str]) -> str | None:
    """What is odd about a name; None if a handler or `--set` may give it a value."""
    # With the prefix, the author says that it is a value of the context, however it looks.
    if name in known or name.startswith((CONTEXT_PREFIX, f"{HUMAN}data.")):
        return None
    near = get_close_matches(name, known, n=1, cutoff=_ALIKE)
    if name.startswith((GRAPH, INTERNAL, HUMAN)):
        return "which nothing sets" + (f"; did you mean {_written(near[0])}?" if near else "")
    return f"which is nearly {_written(near[0])}; did you mean that?" if near else None


def _written(name: str) -> str:
    return f"${name}" if name.isidentifier() else f"${{{name}}}"

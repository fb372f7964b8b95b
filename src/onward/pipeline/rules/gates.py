"""The rule about human gates: their questions and choices are valid."""

from __future__ import annotations

from collections.abc import Iterator

from onward.errors import InvalidInput
from onward.pipeline.gate.options import Unaskable
from onward.pipeline.gate.questions import question_of
from onward.pipeline.rules.rule import Problem, Subject, about

GATE = "wait.human"


def human_gate(subject: Subject) -> Iterator[Problem]:
    """A gate's edges fit its type, and its default choice is one of them."""
    graph = subject.graph
    for node in graph.nodes.values():
        if node.kind != GATE or not graph.outgoing(node.id):
            continue  # the rule dead_end reports it
        try:
            question_of(graph, node)
        except Unaskable as error:
            yield about(node, str(error), key=error.key)
        except (ValueError, InvalidInput):
            pass  # attribute_type reports it

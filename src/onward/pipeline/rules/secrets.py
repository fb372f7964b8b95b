"""The rule about secrets that are written in a pipeline. Its source is stored as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from onward.pipeline.diagnostic import Severity
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.rules.rule import Problem, Rule, Subject, about

SECRET = "secret"


def secret_rule(found_in: Callable[[str], Sequence[str]]) -> Rule:
    """The rule; `found_in` names the known secrets in a text."""

    def find(subject: Subject) -> Iterator[Problem]:
        graph = subject.graph
        owners: list[Graph | Node | Edge] = [graph, *graph.nodes.values(), *graph.edges]
        for owner in owners:
            yield from _written(owner, found_in)

    return Rule(SECRET, Severity.WARNING, find, local=True, per_value=True)


def _written(owner: Graph | Node | Edge, found_in: Callable[[str], Sequence[str]]) -> Iterator[Problem]:
    for key in owner.attrs:
        for name in found_in(owner.text(key)):
            yield about(
                owner,
                f"{key} of {owner.subject} holds the value of {name}, which is stored with every run",
                key=key,
                fix=f"take the value out, and let the command read ${name} from its environment",
            )

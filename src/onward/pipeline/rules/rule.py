"""A rule of the checker, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from onward.pipeline.diagnostic import Diagnostic, Severity
from onward.pipeline.graph import Edge, Graph, Node


@dataclass(frozen=True, slots=True)
class Problem:
    """What a rule found: a sentence, its position, and what to do. If `only_possible`, it is no error."""

    message: str
    line: int
    column: int
    node_id: str | None = None
    edge: tuple[str, str] | None = None
    fix: str | None = None
    only_possible: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """What a rule looks at."""

    graph: Graph
    known_types: Collection[str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A named check of a graph. The findings of a `local` rule do not depend on the rest of the file."""

    name: str
    severity: Severity
    find: Callable[[Subject], Iterator[Problem]]
    local: bool = False

    def diagnostic(self, problem: Problem, file: str) -> Diagnostic:
        """A problem as this rule's finding."""
        softened = problem.only_possible and self.severity is Severity.ERROR
        return Diagnostic(
            self.name,
            Severity.WARNING if softened else self.severity,
            problem.message,
            file,
            problem.line,
            problem.column,
            node_id=problem.node_id,
            edge=problem.edge,
            fix=problem.fix,
        )


def about(
    owner: Graph | Node | Edge,
    message: str,
    *,
    key: str | None = None,
    offset: int | None = None,
    fix: str | None = None,
) -> Problem:
    """A problem of a graph, node or edge; `key` points at that attribute's value, `offset` into the value."""
    line, column = owner.line, owner.column
    if key is not None and (written := owner.written.get(key)):
        line, column = written.position if offset is None else written.at(offset)
    node_id = owner.id if isinstance(owner, Node) else None
    edge = (owner.source, owner.target) if isinstance(owner, Edge) else None
    return Problem(message, line, column, node_id, edge, fix)

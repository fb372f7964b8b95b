"""A rule of the checker, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from onward.model.values import Variables
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.source import Diagnostic, Severity


class Problem(msgspec.Struct, frozen=True):
    """What a rule found: a sentence, its position, and what to do. If `only_possible`, it is no error.

    `value_at` is where the value at fault is written; several nodes may have it, from `node [...]`.
    """

    message: str
    line: int
    column: int
    node_id: str | None = None
    edge: tuple[str, str] | None = None
    fix: str | None = None
    only_possible: bool = False
    value_at: int | None = None


class Subject(msgspec.Struct, frozen=True):
    """What a rule looks at. `variables` are those of the process that is to run it, if known."""

    graph: Graph
    known_types: Collection[str]
    variables: Variables | None = None


class Rule(msgspec.Struct, frozen=True):
    """A named check of a graph. The findings of a `local` rule do not depend on the rest of the file.

    A rule that judges values `per_value` reports a value once, however many nodes or edges have it.
    """

    name: str
    severity: Severity
    find: Callable[[Subject], Iterator[Problem]]
    local: bool = False
    per_value: bool = False

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
    line, column, value_at = owner.line, owner.column, None
    if key is not None and (written := owner.written.get(key)):
        line, column = written.position if offset is None else written.at(offset)
        value_at = written.start
    is_own = not is_default(owner, key)
    node_id = owner.id if isinstance(owner, Node) and is_own else None
    edge = (owner.source, owner.target) if isinstance(owner, Edge) and is_own else None
    return Problem(message, line, column, node_id, edge, fix, value_at=value_at)


def is_default(owner: Graph | Node | Edge, key: str | None) -> bool:
    """Whether a value comes from `node [...]` or `edge [...]`: those are written before what has them."""
    written = owner.written.get(key) if key is not None and not isinstance(owner, Graph) else None
    return written is not None and written.position < (owner.line, owner.column)


def owner_of(owner: Graph | Node | Edge, key: str) -> str:
    """Whose attribute it is, for messages: a default belongs to its block."""
    if not is_default(owner, key):
        return owner.subject
    return "node [...]" if isinstance(owner, Node) else "edge [...]"

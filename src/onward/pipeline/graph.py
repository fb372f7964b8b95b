"""A pipeline as an immutable graph; the engine reads it on every step, so values are cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from onward.pipeline.condition import Condition, parse_condition
from onward.pipeline.source import Attributes, Duration, Value, Written
from onward.pipeline.vocabulary import CHAT_HISTORY, as_history

T = TypeVar("T")


class cached(Generic[T]):
    """The value of the function, computed at first use and kept with the object, even a frozen one.

    Like `functools.cached_property`, without the lock that it has for every value before Python 3.12: a large
    graph has tens of thousands of values.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.name = ""
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> cached[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.function(instance)
        return value


__all__ = ["BUILT_IN_TYPES", "SHAPE_KINDS", "Duration", "Edge", "Graph", "Node", "Value"]

SHAPE_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "Mdiamond": "start",
        "Msquare": "exit",
        "box": "codergen",
        "hexagon": "wait.human",
        "diamond": "conditional",
        "component": "parallel",
        "tripleoctagon": "parallel.fan_in",
        "parallelogram": "tool",
        "house": "stack.manager_loop",
    }
)
"""The handler type of each shape."""
DEFAULT_KIND = "codergen"
DEFAULT_EFFORT = "high"
DEFAULT_ROUNDS = 10
BUILT_IN_TYPES = frozenset(SHAPE_KINDS.values())

_Attrs = Mapping[str, Value]
_Places = Mapping[str, Written]


@dataclass(frozen=True, slots=True)
class Node(Attributes):
    """A node with its attributes, scoped defaults included; two nodes that mean the same are equal.

    `derived` are the classes of the labelled subgraphs around it, innermost first; threads use them too.
    """

    id: str
    attrs: _Attrs = field(default_factory=lambda: MappingProxyType({}))
    derived: tuple[str, ...] = ()
    written: _Places = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    line: int = field(default=1, compare=False)
    column: int = field(default=1, compare=False)

    @property
    def subject(self) -> str:
        return f"node {self.id!r}"

    @cached
    def shape(self) -> str:
        return self.text("shape", "box")

    @cached
    def type(self) -> str:
        """The handler type that the node names, or nothing."""
        return self.text("type")

    @cached
    def kind(self) -> str:
        """The handler type of this node: its `type`, or else that of its shape."""
        return self.type or SHAPE_KINDS.get(self.shape, DEFAULT_KIND)

    @cached
    def label(self) -> str:
        return self.text("label", self.id)

    @cached
    def prompt(self) -> str:
        return self.text("prompt")

    @cached
    def instruction(self) -> str:
        """What the node asks for, with references to values: its prompt, or else its label."""
        return self.prompt or self.label

    @cached
    def classes(self) -> tuple[str, ...]:
        """The classes written on the node, then the derived ones, each once."""
        if "class" not in self.attrs:
            return self.derived
        own = (name.strip() for name in self.text("class").split(","))
        return tuple(dict.fromkeys(name for name in (*own, *self.derived) if name))

    @cached
    def llm_model(self) -> str:
        """The model that the node, the stylesheet or the graph asks for; "" leaves it open."""
        return self.text("llm_model")

    @cached
    def llm_provider(self) -> str:
        """The provider of the model; "" means that the model's name decides."""
        return self.text("llm_provider")

    @cached
    def reasoning_effort(self) -> str:
        return self.text("reasoning_effort") or DEFAULT_EFFORT

    @cached
    def chat_history(self) -> int:
        """How many messages of its run's chat an agent sees that were said before the run."""
        return as_history(self.attrs.get(CHAT_HISTORY, False))

    @cached
    def max_retries(self) -> int | None:
        """Additional attempts, or None if the node leaves it to the graph."""
        return self.count("max_retries")

    @cached
    def rounds_max(self) -> int:
        """How many requests to its model an agent's step may take."""
        return max(1, self.count("max_rounds") or DEFAULT_ROUNDS)

    @cached
    def goal_gate(self) -> bool:
        return self.boolean("goal_gate")

    @cached
    def retry_target(self) -> str:
        return self.text("retry_target")

    @cached
    def fallback_retry_target(self) -> str:
        return self.text("fallback_retry_target")

    @cached
    def timeout_s(self) -> float | None:
        return self.duration_s("timeout")

    @cached
    def repeatable(self) -> bool:
        """Whether an attempt that was cut off may simply run again."""
        return self.boolean("repeatable", True)

    @cached
    def allow_partial(self) -> bool:
        return self.boolean("allow_partial")

    @cached
    def auto_status(self) -> bool:
        return self.boolean("auto_status")

    def with_prompt(self, prompt: str) -> Node:
        """The same node with its prompt expanded; the prompt keeps its position in the file."""
        attrs = MappingProxyType({**self.attrs, "prompt": prompt})
        return Node(self.id, attrs, self.derived, self.written, self.line, self.column)

    def with_attrs(self, changes: Mapping[str, Value]) -> Node:
        """The same node with some attributes set, for transforms; these have no position in the file."""
        attrs, written = MappingProxyType({**self.attrs, **changes}), self.written
        if not written.keys().isdisjoint(changes):
            kept_places = {key: place for key, place in written.items() if key not in changes}
            written = MappingProxyType(kept_places)
        return Node(self.id, attrs, self.derived, written, self.line, self.column)


@dataclass(frozen=True, slots=True)
class Edge(Attributes):
    """A directed edge; `order` is its position among all edges of the file."""

    source: str
    target: str
    attrs: _Attrs = field(default_factory=lambda: MappingProxyType({}))
    order: int = 0
    written: _Places = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    line: int = field(default=1, compare=False)
    column: int = field(default=1, compare=False)

    @property
    def subject(self) -> str:
        return f"edge {self.source} -> {self.target}"

    @cached
    def label(self) -> str:
        return self.text("label")

    @cached
    def condition(self) -> str:
        return self.text("condition")

    @cached
    def guard(self) -> Condition:
        """The parsed condition; without clauses it always holds. ConditionError if it does not parse."""
        return parse_condition(self.condition)

    @cached
    def weight(self) -> int:
        return self.integer("weight") or 0

    @cached
    def data(self) -> dict[str, Any]:
        """What the choice that stands for the edge of a gate says to later steps."""
        return self.json_object("data")

    @cached
    def loop_restart(self) -> bool:
        """Whether it ends the run and starts another."""
        return self.is_true("loop_restart")


@dataclass(frozen=True, slots=True)
class Graph(Attributes):
    """A whole pipeline: nodes by id in declaration order, and edges in declaration order."""

    name: str = ""
    attrs: _Attrs = field(default_factory=lambda: MappingProxyType({}))
    nodes: Mapping[str, Node] = field(default_factory=lambda: MappingProxyType({}))
    edges: tuple[Edge, ...] = ()
    file: str = field(default="<pipeline>", compare=False)
    written: _Places = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    line: int = field(default=1, compare=False)
    column: int = field(default=1, compare=False)

    @property
    def subject(self) -> str:
        return "the graph"

    def outgoing(self, node_id: str) -> tuple[Edge, ...]:
        """The edges that leave a node, in declaration order."""
        return self._outgoing.get(node_id, ())

    def incoming(self, node_id: str) -> tuple[Edge, ...]:
        """The edges that lead to a node, in declaration order."""
        return self._incoming.get(node_id, ())

    def after(self, node_ids: Iterable[str]) -> set[str]:
        """The nodes that edges lead to from any of these, directly or not."""
        reached: set[str] = set()
        ahead = list(node_ids)
        while ahead:
            found = {edge.target for edge in self.outgoing(ahead.pop())} - reached
            reached |= found
            ahead += found
        return reached

    @cached
    def reachable(self) -> frozenset[str]:
        """The start and the nodes that edges lead to from it; none without exactly one start."""
        start = [] if self.start_id is None else [self.start_id]
        return frozenset(start).union(self.after(start))

    @cached
    def restarts(self) -> tuple[Edge, ...]:
        """The edges that end the run and start another."""
        return tuple(edge for edge in self.edges if "loop_restart" in edge.attrs and edge.loop_restart)

    @cached
    def _outgoing(self) -> Mapping[str, tuple[Edge, ...]]:
        return _grouped((edge.source, edge) for edge in self.edges)

    @cached
    def _incoming(self) -> Mapping[str, tuple[Edge, ...]]:
        return _grouped((edge.target, edge) for edge in self.edges)

    @cached
    def starts(self) -> tuple[str, ...]:
        """The nodes that could be the start: by shape, else by name, else by type."""
        return self._claimants("Mdiamond", "start", ("start", "Start"))

    @cached
    def exits(self) -> tuple[str, ...]:
        """The nodes that could be the exit: by shape, else by name, else by type."""
        return self._claimants("Msquare", "exit", ("exit", "end"))

    def _claimants(self, shape: str, kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
        nodes = self.nodes.values()
        by_shape = tuple(node.id for node in nodes if node.shape == shape)
        by_name = by_shape or tuple(node_id for node_id in self.nodes if node_id in names)
        # The type comes last: stored runs began when only shapes and names counted.
        return by_name or tuple(node.id for node in nodes if node.type == kind)

    @cached
    def start_id(self) -> str | None:
        """Where a run begins; None unless there is exactly one such node."""
        return self.starts[0] if len(self.starts) == 1 else None

    @cached
    def exit_id(self) -> str | None:
        """Where a run ends; None unless there is exactly one such node."""
        return self.exits[0] if len(self.exits) == 1 else None

    @cached
    def goal(self) -> str:
        return self.text("goal")

    @cached
    def retry_target(self) -> str:
        return self.text("retry_target")

    @cached
    def fallback_retry_target(self) -> str:
        return self.text("fallback_retry_target")

    @cached
    def default_max_retries(self) -> int:
        """Additional attempts for nodes without `max_retries`; the older `default_max_retry` still works."""
        key = "default_max_retries" if "default_max_retries" in self.attrs else "default_max_retry"
        return self.count(key) or 0


def _grouped(pairs: Iterable[tuple[str, Edge]]) -> Mapping[str, tuple[Edge, ...]]:
    groups: dict[str, list[Edge]] = {}
    for key, edge in pairs:
        groups.setdefault(key, []).append(edge)
    return {key: tuple(edges) for key, edges in groups.items()}

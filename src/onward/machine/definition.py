"""A graph as the planner uses it, with what every step needs looked up once.

That includes when a step is retried; the time and the dice are parameters of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import msgspec

from onward.model.events import Transition
from onward.model.run import Simulation
from onward.pipeline.branches import FAN_IN, PARALLEL, branches_of, joins
from onward.pipeline.graph import BUILT_IN_TYPES, Edge, Graph, Node
from onward.pipeline.purpose import is_about_messages
from onward.pipeline.rules.attributes import FILE_MODES
from onward.pipeline.source import as_text
from onward.pipeline.vocabulary import ON_MESSAGE, WHILE_RUNNING, WHILE_RUNNING_RULES

MAX_VISITS = 1_000
AGENT_VISITS = 25
"""How often a run visits a node that asks a model, unless the pipeline or a person says how often."""
MAX_STEPS = 100_000
MAX_REROUTES = 50
MAX_RESTARTS = 100

MAX_PARALLEL = 4

START, EXIT, CONDITIONAL, GATE, AGENT = "start", "exit", "conditional", "wait.human", "codergen"
MANAGER, TOOL = "stack.manager_loop", "tool"
PLANNER_KINDS = frozenset({START, EXIT, CONDITIONAL, GATE, PARALLEL, FAN_IN})
"""Nodes that the planner executes itself; all others have a handler."""
QUEUE, STEER = WHILE_RUNNING_RULES
WAIT_ALL, FIRST_SUCCESS = "wait_all", "first_success"


def is_simulated(simulation: Simulation | None, kind: str) -> bool:
    """Whether nodes of this kind are played instead of executed. A manager's run is simulated itself."""
    if simulation is None or kind == MANAGER or kind in PLANNER_KINDS:
        return False
    return kind == AGENT or not simulation.real_tools


class Definition:
    """The graph with its ceilings, gates and retry policies."""

    BUILT_IN: ClassVar[frozenset[str]] = BUILT_IN_TYPES
    # What every step reads has a slot, which is read several times faster than a cached property.
    __slots__ = (
        *("__dict__", "_kinds", "_only_transitions", "choosers", "graph"),
        *("file_modes", "max_steps", "max_visits", "restarts"),
    )

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.max_visits = self._ceiling("max_visits", MAX_VISITS)
        self.max_steps = self._ceiling("max_steps", MAX_STEPS)
        self.restarts = frozenset(edge.order for edge in graph.restarts)
        """The edges that end the run and begin another."""
        fan_ins = (node for node in graph.nodes.values() if node.kind == FAN_IN)
        self.choosers = frozenset(node.id for node in fan_ins if node.text("prompt"))
        """The fan-ins that say how to choose, so that a model does."""
        self._kinds = self._kinds_of_nodes()
        self._only_transitions = _only_transitions(graph)
        self.file_modes = _file_modes(graph)
        """How the files of each node are kept, as it or the graph says; empty where neither does."""

    def __repr__(self) -> str:
        return f"Definition({self.graph!r})"

    @cached_property
    def max_reroutes(self) -> int:
        return self._ceiling("max_reroutes", MAX_REROUTES)

    @cached_property
    def max_restarts(self) -> int:
        return self._ceiling("max_restarts", MAX_RESTARTS)

    def _ceiling(self, name: str, default: int) -> int:
        found = self.graph.count(name)
        return default if found is None else found

    def written_visits(self, node: Node) -> int | None:
        """How often the pipeline says that the node may be visited; the node's own word counts first."""
        own = node.count("max_visits")
        return self.graph.count("max_visits") if own is None else own

    @cached_property
    def asking(self) -> frozenset[str]:
        """The nodes that ask a model and do not say how often, and the fan-outs with such a node in a branch.

        A loop around a fan-out counts as visits of the fan-out; each visit begins its branches anew.
        """
        nodes = self.graph.nodes.values()
        found = {
            node.id for node in nodes if self.kind(node.id) == AGENT and self.written_visits(node) is None
        }
        branches = branches_of(self.graph) if found and self.joins else None
        size = 0
        while branches is not None and len(found) > size:  # a fan-out may be in a branch of another
            size = len(found)
            found |= {name for name, branch in branches.of_fan_outs.items() if found & branch.before.keys()}
        return frozenset(found)

    @cached_property
    def goal_gates(self) -> frozenset[str]:
        return frozenset(node.id for node in self.graph.nodes.values() if node.goal_gate)

    def _kinds_of_nodes(self) -> dict[str, str]:
        kinds = {node.id: node.kind for node in self.graph.nodes.values()}
        # With a prompt, a model chooses between the branches.
        kinds |= dict.fromkeys(self.choosers, AGENT)
        # A node may be the start or the exit by its name alone.
        if self.graph.start_id is not None:
            kinds[self.graph.start_id] = START
        if self.graph.exit_id is not None:
            kinds[self.graph.exit_id] = EXIT
        return kinds

    def kind(self, node_id: str) -> str:
        """What serves the node: a rule of the planner, or the handler of this name."""
        return self._kinds[node_id]

    @cached_property
    def joins(self) -> Mapping[str, str | None]:
        """Where the branches of each fan-out meet."""
        return joins(self.graph)

    def join_policy(self, node: Node) -> str:
        """Whether a fan-out waits for all branches or for the first that succeeds."""
        return node.text("join_policy") or WAIT_ALL

    def max_parallel(self, node: Node) -> int:
        """How many effects of a fan-out may be under way at once."""
        return max(1, node.count("max_parallel") or MAX_PARALLEL)

    @cached_property
    def handler_kinds(self) -> dict[str, str]:
        """The nodes that need a handler, and which."""
        return {node_id: kind for node_id, kind in self._kinds.items() if kind not in PLANNER_KINDS}

    @cached_property
    def handlers(self) -> tuple[str, ...]:
        """The handlers that its nodes need, each once and in order."""
        return tuple(sorted({*self.handler_kinds.values()}))

    @cached_property
    def max_running(self) -> int | None:
        """How many runs of this pipeline may be held at once."""
        return self.graph.count("max_running")

    @cached_property
    def on_message(self) -> str:
        """What a message in its chat does to an interrupted run; empty leaves it to the settings."""
        return self.graph.text(ON_MESSAGE)

    @cached_property
    def while_running(self) -> str:
        """What a message in its chat does to a run under way: it is queued behind it, or steers it."""
        return self.graph.text(WHILE_RUNNING) or QUEUE

    @cached_property
    def workspace(self) -> str:
        """The directory whose repository the steps change, as the pipeline says it; mostly it does not."""
        return self.graph.text("workspace")

    @cached_property
    def mirrored(self) -> Mapping[str, str]:
        """The graph's own attributes, as every context of a run begins with them. What only chooses the
        pipeline for a message is left out: it can be long, and is done with."""
        attrs = self.graph.attrs.items()
        return {f"graph.{key}": as_text(value) for key, value in attrs if not is_about_messages(key)}

    @cached_property
    def _edges(self) -> dict[int, Edge]:
        return {edge.order: edge for edge in self.graph.edges}

    def edge(self, order: int | None) -> Edge | None:
        """The edge at this place in the graph; None for a jump."""
        return None if order is None else self._edges.get(order)

    @cached_property
    def managers(self) -> tuple[Node, ...]:
        """The nodes that manage other runs."""
        return tuple(self.graph.nodes[name] for name, kind in self._kinds.items() if kind == MANAGER)

    def only_transition(self, node_id: str) -> Transition | None:
        """The transition from a node whose only edge has no condition; None if there is a choice."""
        return self._only_transitions.get(node_id)

    @cached_property
    def likely_paths(self) -> dict[str, tuple[str, ...]]:
        """The likely ways by where they start (`machine.path`), where they are the same for all runs."""
        return {}

    @cached_property
    def _policies(self) -> dict[str, RetryPolicy]:
        return {}

    def retry_policy(self, node: Node) -> RetryPolicy:
        """How often and after which pauses the node is retried."""
        found = self._policies.get(node.id)
        if found is None:
            found = self._policies[node.id] = policy_of(self.graph, node)
        return found

    @cached_property
    def retries_failures(self) -> bool:
        """Whether FAIL is retried like RETRY; the graph can say `retry_on_fail=false`."""
        return self.graph.boolean("retry_on_fail", True)


def _only_transitions(graph: Graph) -> dict[str, Transition]:
    """The transitions from nodes whose only edge has no condition."""
    ways = {}
    for node_id in graph.nodes:
        edges = graph.outgoing(node_id)
        if len(edges) == 1 and not edges[0].guard.clauses:
            ways[node_id] = Transition(to=edges[0].target, reason="weight", edge=edges[0].order)
    return ways


def _file_modes(graph: Graph) -> dict[str, str]:
    own = {node.id: node.text("files") for node in graph.nodes.values() if "files" in node.attrs}
    # To a handler of somebody else's, `files` may mean something else.
    ours = {node_id: mode for node_id, mode in own.items() if mode in FILE_MODES}
    return dict.fromkeys(graph.nodes, graph.text("files")) | ours


PRESETS: dict[str, tuple[int, float, float]] = {
    "none": (0, 0.2, 2.0),
    "standard": (4, 0.2, 2.0),
    "aggressive": (4, 0.5, 2.0),
    "linear": (2, 0.5, 1.0),
    "patient": (2, 2.0, 3.0),
}
DELAY_S_MAX = 60.0


class RetryPolicy(msgspec.Struct, frozen=True):
    """So many additional attempts, with growing pauses between them."""

    retries_max: int
    delay_s_first: float = 0.2
    factor: float = 2.0
    delay_s_max: float = DELAY_S_MAX


def policy_of(graph: Graph, node: Node) -> RetryPolicy:
    """The node's own policy, else the graph's; `retry_policy` names a preset, `max_retries` its count."""
    name = node.text("retry_policy") or graph.text("retry_policy")
    preset_retries, first_s, factor = PRESETS.get(name, (None, 0.2, 2.0))
    written = node.max_retries
    if written is None:
        written = preset_retries if preset_retries is not None else graph.default_max_retries
    return RetryPolicy(written, first_s, factor)


def retry_at_us(policy: RetryPolicy, *, retries_spent: int, now_us: int, jitter: float) -> int | None:
    """When to try again, or None when the policy is spent. `jitter` is in [0, 1)."""
    if retries_spent >= policy.retries_max:
        return None
    # The exponent is bounded so that a thousand retries do not overflow a float.
    delay_s = min(policy.delay_s_first * policy.factor ** min(retries_spent, 64), policy.delay_s_max)
    return now_us + int(delay_s * (0.5 + jitter) * 1_000_000)

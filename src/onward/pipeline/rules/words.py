"""Rules about words that are misspelt, misplaced or another program's: attributes, shapes, outcomes.

A word that is merely unknown is left alone, because handlers read attributes of their own. A word that was
meant for Onward and has no effect is a warning, and an error if without it a gate would not hold.

In order: the names of attributes, attributes that the kind of their node does not read, shapes, and
conditions on the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from msgspec.structs import replace

from onward.errors import ConditionError
from onward.pipeline.condition import Clause
from onward.pipeline.edges import has_accelerator
from onward.pipeline.gate import OPTIONS
from onward.pipeline.graph import BUILT_IN_TYPES, SHAPE_KINDS, Edge, Graph, Node
from onward.pipeline.inputs import is_about_inputs
from onward.pipeline.purpose import is_about_messages
from onward.pipeline.rules.rule import Problem, Subject, about, is_default, owner_of
from onward.pipeline.rules.steps import GATE, misspelt_command
from onward.pipeline.source import shown
from onward.pipeline.vocabulary import (
    CHAT_HISTORY,
    EDGE_ATTRIBUTES,
    FOREIGN_GRAPH,
    FOREIGN_NODE,
    FOREIGN_TYPE,
    GRAPH_ATTRIBUTES,
    GUARDS,
    NODE_ATTRIBUTES,
    REQUIRED,
    is_near,
    meant,
)

COMPARED_MAX = 500
"""Looking for a similar name costs time per name; a file with more unknown names gets no suggestions."""
_PLACES = {
    "the graph": (GRAPH_ATTRIBUTES, "write it as graph [{key}=...]"),
    "an edge": (EDGE_ATTRIBUTES, "write it on an edge, as in a -> b [{key}=...]"),
    "a node": (NODE_ATTRIBUTES, "write it on a node, or as node [{key}=...] for all"),
}


def attribute_known(subject: Subject) -> Iterator[Problem]:
    """No attribute is nearly one of ours, in the wrong place, or one that only other programs read."""
    graph = subject.graph
    names = _Names()
    for owner in chain[Graph | Node | Edge]((graph,), graph.nodes.values(), graph.edges):
        ours = _ours(owner)
        if ours.issuperset(owner.attrs):
            continue
        # What an error about the node says is not said again.
        said = misspelt_command(owner) if isinstance(owner, Node) else ""
        is_graph = isinstance(owner, Graph)
        for key in owner.attrs:
            if is_graph and (is_about_messages(key) or is_about_inputs(key)):
                continue  # messages_described and inputs_described judge it
            if key not in ours and key in owner.written and key != said:
                yield from names.problems(owner, key)


class _Names:
    """Judges names: a value that many nodes of a kind have only once, and a name only once."""

    def __init__(self) -> None:
        self._near: dict[tuple[type, str], str] = {}
        self._judged: set[tuple[int, str]] = set()

    def problems(self, owner: Graph | Node | Edge, key: str) -> Iterator[Problem]:
        kind = owner.kind if isinstance(owner, Node) else ""
        value = owner.written[key].start, kind
        if value in self._judged:
            return
        self._judged.add(value)
        near = self._meant(owner, key)
        if near and near not in owner.attrs:
            message = f"{key} of {owner_of(owner, key)} has no effect"
            problem = about(owner, message, key=key, fix=f"did you mean {near}?")
            yield replace(problem, only_possible=near not in GUARDS)
        elif not kind or kind in BUILT_IN_TYPES:  # a handler of another type may read anything else
            yield from _foreign(owner, key) or _misplaced(owner, key)

    def _meant(self, owner: Graph | Node | Edge, key: str) -> str:
        search = type(owner), key
        if search not in self._near and len(self._near) < COMPARED_MAX:
            self._near[search] = meant(key, _ours(owner))
        return self._near.get(search, "")


def _ours(owner: Graph | Node | Edge) -> frozenset[str]:
    if isinstance(owner, Graph):
        return GRAPH_ATTRIBUTES
    return NODE_ATTRIBUTES if isinstance(owner, Node) else EDGE_ATTRIBUTES


def _misplaced(owner: Graph | Node | Edge, key: str) -> tuple[Problem, ...]:
    for place, (names, fix) in _PLACES.items():
        if key in names:
            message = f"{key} of {owner_of(owner, key)} has no effect: it belongs to {place}"
            problem = about(owner, message, key=key, fix=fix.format(key=key))
            return (replace(problem, only_possible=key not in GUARDS),)
    return ()


def _foreign(owner: Graph | Node | Edge, key: str) -> tuple[Problem, ...]:
    if isinstance(owner, Node) and key in FOREIGN_TYPE:
        return _foreign_type(owner, key)
    ours = _names_of(owner).get(key, "")
    if not ours or ours in owner.attrs:
        return ()
    message = f"{key} of {owner_of(owner, key)} has no effect"
    return (replace(about(owner, message, key=key, fix=f"write {ours}"), only_possible=True),)


def _foreign_type(node: Node, key: str) -> tuple[Problem, ...]:
    """Others name the handler so. If the node is of another kind, what was meant does not run."""
    wanted = node.text(key)
    if node.type or wanted == node.kind:
        return ()
    message = f"{key} of {owner_of(node, key)} is {shown(wanted)}, which has no effect: it is {node.kind}"
    is_ours = wanted in BUILT_IN_TYPES
    fix = f"write type={wanted}" + ("" if is_ours else " if you register such a handler, or remove it")
    return (replace(about(node, message, key=key, fix=fix), only_possible=not is_ours),)


def _names_of(owner: Graph | Node | Edge) -> Mapping[str, str]:
    if isinstance(owner, Graph):
        return FOREIGN_GRAPH
    return {**FOREIGN_NODE[""], **FOREIGN_NODE.get(owner.kind, {})} if isinstance(owner, Node) else {}


_SILENT = frozenset({"start", "exit", "conditional", "parallel", "tool"})
_ENDS = frozenset({"start", "exit"})
_PASSED = _ENDS | {"conditional"}
_NAMES: Mapping[str, str] = {
    "start": "the start",
    "exit": "the exit",
    "codergen": "an agent",
    "wait.human": "a human gate",
    "conditional": "a routing node",
    "parallel": "a fan-out",
    "parallel.fan_in": "a fan-in",
    "tool": "a shell command",
    "stack.manager_loop": "a manager loop",
}
_READERS: Mapping[str, tuple[str, str]] = {
    "human.": ("wait.human", "give it shape=hexagon to ask a person, or remove it"),
    "tool_command": ("tool", "give it shape=parallelogram to run the command, or remove it"),
    "manager.": ("stack.manager_loop", "give it shape=house to manage a pipeline, or remove it"),
    "join_policy": ("parallel", "write it on the node with shape=component, or remove it"),
    "max_parallel": ("parallel", "write it on the node with shape=component, or remove it"),
    CHAT_HISTORY: ("codergen", "write it on an agent, with shape=box, or remove it"),
}
"""Attributes that one kind of node reads."""
_MUST_COUNT = ("human.", "tool_command", "goal_gate")
"""Without effect, these let a run pass where it should ask, test or stop."""


def attribute_unused(subject: Subject) -> Iterator[Problem]:
    """An attribute of ours is on a kind of node that reads it. A default is for whichever nodes read it.

    Handlers of other types may read any attribute.
    """
    graph = subject.graph
    advice: dict[tuple[str, str], str] = {}  # a file has thousands of attributes, and few names and kinds
    for node in graph.nodes.values():
        kind = _kind(graph, node)
        if kind not in BUILT_IN_TYPES:
            continue
        for key in node.attrs:
            fix = advice.get((kind, key))
            if fix is None:
                fix = advice[kind, key] = _advice(kind, key)
            if fix:
                yield from _unused(node, kind, key, fix)
        yield from _unused_data(graph, node, kind)


def _unused(node: Node, kind: str, key: str, fix: str) -> Iterator[Problem]:
    if _asks_for_nothing(node, key) or key not in node.written or is_default(node, key):
        return
    message = f"{key} of node {node.id!r} has no effect: it is {_NAMES[kind]}"
    problem = about(node, message, key=key, fix=fix)
    yield replace(problem, only_possible=not key.startswith(_MUST_COUNT))


def _unused_data(graph: Graph, node: Node, kind: str) -> Iterator[Problem]:
    """Only what a person may choose has data; proposed options have their own."""
    for edge in graph.outgoing(node.id):
        if "data" not in edge.written or is_default(edge, "data"):
            continue
        if kind != GATE:
            why, fix = (
                f"node {node.id!r} is {_NAMES[kind]}",
                "write it on the edges of a human gate, or remove it",
            )
        elif node.text(OPTIONS) and not edge.label and not edge.condition:
            why, fix = "its options have their own", "label the edge, or remove it"
        else:
            continue
        problem = about(edge, f"data of {edge.subject} has no effect: {why}", key="data", fix=fix)
        yield replace(problem, only_possible=True)


def _advice(kind: str, key: str) -> str:
    """What to write instead of an attribute that a kind of node does not read; nothing if it reads it."""
    if key == "prompt":
        return "put it on a node with shape=box, or remove it" if kind in _SILENT else ""
    if key == "goal_gate":
        return "put it on the step that must succeed" if kind in _ENDS else ""
    if key == REQUIRED:
        return "put it on the step that a resume needs" if kind in _PASSED else ""
    for begin, (reader, fix) in _READERS.items():
        if key == begin or (begin.endswith(".") and key.startswith(begin)):
            return fix if kind != reader else ""
    return ""


def _asks_for_nothing(node: Node, key: str) -> bool:
    """Whether the attribute would have no effect on any node: it is empty, or false."""
    if key == "goal_gate":
        return not node.is_true(key)
    return key == "prompt" and not node.prompt


def _kind(graph: Graph, node: Node) -> str:
    """The kind that runs a node, which may be the start or the exit by its name alone."""
    if node.id == graph.start_id:
        return "start"
    return "exit" if node.id == graph.exit_id else node.kind


_MEANINGS = {
    "Mdiamond": "the start",
    "Msquare": "the exit",
    "box": "an agent",
    "hexagon": "a human gate",
    "diamond": "routing by edges",
    "component": "parallel branches",
    "tripleoctagon": "a fan-in",
    "parallelogram": "a shell command",
    "house": "another pipeline",
}
_BOXES = ("rect", "rectangle")
"""Graphviz's other names for a box."""
_ELSEWHERE = {
    "circle": "Mdiamond",
    "doublecircle": "Msquare",
    "Mcircle": "Mdiamond",
    "square": "Msquare",
    "doubleoctagon": "tripleoctagon",
    "octagon": "hexagon",
    "septagon": "hexagon",
    "pentagon": "hexagon",
    "folder": "house",
    "invhouse": "house",
}
"""Shapes that Graphviz can draw, and which of ours they may stand for; of all others it is a box."""
_GRAPHVIZ = frozenset(
    {
        *("assembly", "box3d", "cds", "cylinder", "egg", "ellipse"),
        *("fivepoverhang", "insulator", "invtrapezium", "invtriangle", "larrow", "lpromoter"),
        *("Mrecord", "none", "note", "noverhang", "oval", "plain"),
        *("plaintext", "point", "polygon", "primersite", "promoter", "proteasesite"),
        *("proteinstab", "rarrow", "record", "restrictionsite", "ribosite", "rnastab"),
        *("rpromoter", "signature", "star", "tab", "terminator", "threepoverhang"),
        *("trapezium", "triangle", "underline", "utr"),
    }
)


def shape_known(subject: Subject) -> Iterator[Problem]:
    """A shape that decides what runs its node is one of ours.

    A shape that only Graphviz knows makes a node an agent, as the dialect says. That is a warning, unless
    the node looks like a human gate, which would not ask. A shape that no program knows is an error.
    """
    graph = subject.graph
    for node in graph.nodes.values():
        if node.shape in SHAPE_KINDS or node.shape in _BOXES or node.type:
            continue
        if node.id not in (graph.start_id, graph.exit_id):
            yield _unknown(graph, node)


def _unknown(graph: Graph, node: Node) -> Problem:
    owner, shape = owner_of(node, "shape"), shown(node.shape)
    if node.shape in _GRAPHVIZ or node.shape in _ELSEWHERE:
        message = f"shape of {owner} is {shape}, which has no meaning here: it runs as an agent"
        ours = _ELSEWHERE.get(node.shape, "box")
        other = "" if ours == "box" else f"shape={ours} for {_MEANINGS[ours]}, or "
        problem = about(node, message, key="shape", fix=f"write {other}shape=box for an agent")
        return replace(problem, only_possible=not _asks(graph, node))
    near = meant(node.shape, SHAPE_KINDS)
    fix = f"did you mean {near!r}, {_MEANINGS[near]}?" if near else f"write one of {', '.join(SHAPE_KINDS)}"
    return about(node, f"shape of {owner} is {shape}, which is not a shape", key="shape", fix=fix)


def _asks(graph: Graph, node: Node) -> bool:
    """Whether a node is written like a human gate: only gates have `human.…` and keys such as `[Y] Yes`."""
    if any(key.startswith("human.") for key in node.attrs):
        return True
    return any(has_accelerator(edge.label) for edge in graph.outgoing(node.id))


OUTCOMES = ("success", "partial_success", "retry", "fail")
_KEY = "outcome"
_SYNONYMS = {
    **dict.fromkeys(("succeeded", "succeed", "successful", "passed", "pass", "ok", "completed"), "success"),
    **dict.fromkeys(("failed", "failure", "failing", "fails", "error", "rejected"), "fail"),
    **dict.fromkeys(("partial", "partially"), "partial_success"),
    **dict.fromkeys(("retrying", "retries", "again"), "retry"),
}


def outcome_known(subject: Subject) -> Iterator[Problem]:
    """Every condition on the outcome can be true and can be false.

    It is an error if the run would take another edge instead, and a warning if it would stop there.
    """
    graph = subject.graph
    for edge in graph.edges:
        try:
            clauses = edge.guard.clauses
        except ConditionError:
            continue  # condition_syntax reports it
        for clause in clauses:
            if clause.key == _KEY and clause.operator and clause.literal not in (*OUTCOMES, ""):
                yield _impossible(graph, edge, clause)
            elif clause.key != _KEY and is_near(clause.key.lower(), _KEY):
                yield _misspelt(graph, edge, clause)


def _impossible(graph: Graph, edge: Edge, clause: Clause) -> Problem:
    meant = _meant(clause.literal)
    never = "never" if clause.operator == "=" else "always"
    message = (
        f"the condition of {owner_of(edge, 'condition')} compares outcome with {shown(clause.literal)}, "
        f"which is not an outcome: it is {never} true"
    )
    fix = f"write one of {', '.join(OUTCOMES)}; for other words use preferred_label or the context"
    if meant:
        fix = f"did you mean outcome{clause.operator}{meant}?"
    problem = about(edge, message, key="condition", offset=_offset(edge, clause, clause.literal), fix=fix)
    return replace(problem, only_possible=not _misleads(graph, edge, clause, meant or "success"))


def _misspelt(graph: Graph, edge: Edge, clause: Clause) -> Problem:
    message = f"the condition of {owner_of(edge, 'condition')} reads {clause.key!r} from the context"
    fix = f"did you mean outcome? If not, write context.{clause.key}"
    problem = about(edge, message, key="condition", offset=_offset(edge, clause, clause.key), fix=fix)
    return replace(problem, only_possible=not _misleads(graph, edge, clause, _meant(clause.literal)))


def _offset(edge: Edge, clause: Clause, word: str) -> int:
    key = edge.condition.find(clause.key)
    return key if word == clause.key else max(key, edge.condition.find(word, key + len(clause.key)))


def _meant(word: str) -> str:
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    near = (outcome for outcome in OUTCOMES if is_near(plain, outcome))
    return _SYNONYMS.get(plain) or next(near, "")


def _misleads(graph: Graph, edge: Edge, clause: Clause, outcome: str) -> bool:
    """Whether a run with the outcome that was meant takes an edge that it should not."""
    if clause.operator != "=":
        return True
    others = (other for other in graph.outgoing(edge.source) if other is not edge)
    return any(_is_taken(graph, other, outcome) for other in others)


def _is_taken(graph: Graph, edge: Edge, outcome: str) -> bool:
    try:
        clauses = edge.guard.clauses
    except ConditionError:
        return False
    if not clauses:
        return outcome != "fail" or _passes_failures(graph, edge.source)
    about_the_outcome = [clause for clause in clauses if clause.key == _KEY]
    return bool(about_the_outcome) and all(clause.holds(lambda _: outcome) for clause in about_the_outcome)


def _passes_failures(graph: Graph, node_id: str) -> bool:
    """Whether a plain edge may be followed by a failure: C3."""
    node = graph.nodes.get(node_id)
    if node is None or node.kind == "conditional":
        return True
    says = node.text("continue_on_fail") or graph.text("continue_on_fail")
    return says.strip() == "true"

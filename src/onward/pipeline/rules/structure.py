"""Rules about how nodes and edges are connected: where a run begins, ends, branches and joins.

A branch cannot end its run, or open the fan-out that it came from. The planner refuses both when a run gets
there, which may be hours later. Here they are errors if only those branches can get there, and warnings if
others can too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

from msgspec.structs import replace

from onward.model.limits import NAME_CHARACTERS_MAX
from onward.pipeline.branches import (
    FAN_IN,
    PARALLEL,
    Branches,
    BranchReach,
    Hop,
    branches_of,
    components,
    joins,
)
from onward.pipeline.graph import DEFAULT_KIND, Graph, Node
from onward.pipeline.rules.rule import Problem, Subject, about, owner_of

NAME_SHOWN = 40
NAMES_COMPARED_MAX = 200
"""Looking for a similar name costs time per name; larger graphs get no suggestion."""


def name_length(subject: Subject) -> Iterator[Problem]:
    """Names are in indexes of the database, which limit their length."""
    graph = subject.graph
    named: list[tuple[Graph | Node, str, str]] = [(graph, "the pipeline name", graph.name)]
    for node in graph.nodes.values():
        named += [(node, "the node id", node.id), (node, "the handler name", node.type)]
    for owner, what, name in named:
        if len(name) > NAME_CHARACTERS_MAX:
            message = f"{what} {name[:NAME_SHOWN]!r}… has {len(name):,} characters"
            yield about(owner, message, fix=f"shorten it to at most {NAME_CHARACTERS_MAX}")


def reachability(subject: Subject) -> Iterator[Problem]:
    """V3: every node can be reached from the start by edges; a jump by `retry_target` is not an edge."""
    graph = subject.graph
    if graph.start_id is None:
        return
    jumps = _jumps(graph)
    for node in graph.nodes.values():
        if node.id not in graph.reachable:
            fix = "add an edge to it, or remove it"
            if node.id in jumps:
                fix = "a retry target does not make it reachable: add an edge, with a condition if needed"
            yield about(node, f"node {node.id!r} cannot be reached from the start", fix=fix)


def edge_target_exists(subject: Subject) -> Iterator[Problem]:
    """V4: both ends of an edge are declared nodes."""
    graph = subject.graph
    for edge in graph.edges:
        for node_id in dict.fromkeys((edge.source, edge.target)):
            if node_id not in graph.nodes:
                message = f"edge {edge.source} -> {edge.target} names node {node_id!r}, which is not declared"
                yield about(edge, message, fix=_similar(node_id, graph.nodes) or f"declare {node_id}")


def start_no_incoming(subject: Subject) -> Iterator[Problem]:
    """V5: nothing leads back to the start."""
    graph = subject.graph
    for node_id in graph.starts:
        for edge in graph.incoming(node_id):
            fix = "point it at the node after the start"
            yield about(edge, f"edge {edge.source} -> {edge.target} leads to the start node", fix=fix)


def exit_no_outgoing(subject: Subject) -> Iterator[Problem]:
    """V6: no edge leaves the exit."""
    graph = subject.graph
    for node_id in graph.exits:
        for edge in graph.outgoing(node_id):
            yield about(edge, f"edge {edge.source} -> {edge.target} leaves the exit node", fix="remove it")


def dead_end(subject: Subject) -> Iterator[Problem]:
    """Only the exit has no outgoing edges. Nodes that no run can reach are left to `reachability`."""
    graph = subject.graph
    if not graph.exits:
        return
    jumps = _jumps(graph)
    for node in graph.nodes.values():
        is_met = node.id in graph.starts or node.id in jumps or graph.incoming(node.id)
        if is_met and node.id not in graph.exits and not graph.outgoing(node.id):
            message = f"node {node.id!r} has no outgoing edges; a run or branch that reaches it ends there"
            yield about(node, message, fix=f"add an edge, for example {node.id} -> {graph.exits[0]}")


def retry_target_exists(subject: Subject) -> Iterator[Problem]:
    """V11: both kinds of retry target name declared nodes."""
    graph = subject.graph
    for owner in _owners(graph):
        for key in ("retry_target", "fallback_retry_target"):
            target = owner.text(key)
            if target and target not in graph.nodes:
                message = f"{key} of {owner_of(owner, key)} names node {target!r}, which is not declared"
                yield about(owner, message, key=key, fix=_similar(target, graph.nodes))


def goal_gate_has_retry(subject: Subject) -> Iterator[Problem]:
    """V12: every goal gate has a retry target."""
    graph = subject.graph
    if any(_targets(graph)):
        return
    for node in graph.nodes.values():
        if node.is_true("goal_gate") and not any(_targets(node)):
            message = f"node {node.id!r} is a goal gate without a retry target; if it is unmet, the run fails"
            yield about(node, message, fix="set retry_target on the node or the graph")


def _owners(graph: Graph) -> Iterator[Graph | Node]:
    yield graph
    yield from graph.nodes.values()


def _jumps(graph: Graph) -> set[str]:
    """The nodes that retry targets name; an empty name is none."""
    return {target for owner in _owners(graph) for target in _targets(owner)}


def _targets(owner: Graph | Node) -> tuple[str, str]:
    return owner.retry_target, owner.fallback_retry_target


def _similar(name: str, names: Collection[str]) -> str | None:
    if len(names) > NAMES_COMPARED_MAX:
        return None
    matches = get_close_matches(name, names, n=1)
    return f"did you mean {matches[0]!r}?" if matches else None


NAMES_SHOWN_MAX = 5
_STARTS = ("start", "begin", "entry")
_EXITS = ("exit", "end", "done", "finish", "finished", "stop")


def start_node(subject: Subject) -> Iterator[Problem]:
    """V1: exactly one start."""
    graph = subject.graph
    if not graph.starts:
        fix = _meant(graph, "Mdiamond", _STARTS) or "give one node shape=Mdiamond, or name it 'start'"
        yield about(graph, "the pipeline has no start node", fix=fix)
    yield from _too_many(graph, "start", graph.starts)


def terminal_node(subject: Subject) -> Iterator[Problem]:
    """V2: exactly one exit."""
    graph = subject.graph
    if not graph.exits:
        fix = _meant(graph, "Msquare", _EXITS) or _last(graph)
        yield about(graph, "the pipeline has no exit node", fix=fix)
    yield from _too_many(graph, "exit", graph.exits)


def _meant(graph: Graph, shape: str, names: Sequence[str]) -> str:
    """Advice that names the nodes whose shape or name nearly says it."""
    nodes = graph.nodes.values()
    found = [node.id for node in nodes if node.shape.lower() == shape.lower()]
    found = found or [node.id for node in nodes if node.id.lower() in names]
    if not found:
        return ""
    one = repr(found[0]) if len(found) == 1 else f"one of {listed([repr(name) for name in found])}"
    return f"did you mean {one}? Write {found[0]} [shape={shape}]"


def _last(graph: Graph) -> str:
    """Advice that names the nodes after which a run could end."""
    last = [node_id for node_id in graph.nodes if not graph.outgoing(node_id)]
    if not last or len(graph.nodes) == 1:
        return "give one node shape=Msquare, or name it 'exit'"
    names = listed([repr(name) for name in last])
    return f"no edge leaves {names}: write exit [shape=Msquare] and {last[0]} -> exit"


def _too_many(graph: Graph, role: str, claimants: Sequence[str]) -> Iterator[Problem]:
    # A node with type=exit ends the run even beside one that has the shape.
    typed: list[Node] = [node for node in graph.nodes.values() if node.type == role]
    found = tuple(dict.fromkeys((*claimants, *(node.id for node in typed))))
    if len(found) > 1:
        message = f"the pipeline has {len(found)} {role} nodes: {listed(found)}"
        yield about(graph.nodes[found[1]], message, fix="keep exactly one")


def listed(names: Sequence[str]) -> str:
    """Some names for a message, and how many more there are."""
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def exit_reachable(subject: Subject) -> Iterator[Problem]:
    """Every node leads to the exit, to a dead end, or to an edge that starts the run anew.

    The rule dead_end reports dead ends, and jumps to retry targets count as ways.
    """
    graph = subject.graph
    if graph.start_id is None or graph.exit_id is None:
        return
    ends = {node_id for node_id in graph.nodes if not graph.outgoing(node_id)}
    ends |= {edge.source for edge in graph.restarts}
    ending = _leading_to(graph, ends)
    caught = [node_id for node_id in graph.nodes if node_id in graph.reachable and node_id not in ending]
    if caught:
        names = listed([repr(node_id) for node_id in caught])
        message = f"no edge leads from {names} to the exit: a run that reaches them cannot finish"
        fix = f"add an edge with a condition, for example {caught[0]} -> {graph.exit_id}"
        yield about(graph.nodes[caught[0]], message, fix=fix)


def _leading_to(graph: Graph, ends: set[str]) -> set[str]:
    """The nodes from which one of the ends can be reached, by edges and by retry targets."""
    jumps: dict[str, list[str]] = {}
    for node in graph.nodes.values():
        for target in (node.retry_target, node.fallback_retry_target):
            if target:
                jumps.setdefault(target, []).append(node.id)
    found, ahead = set(ends), list(ends)
    while ahead:
        node_id = ahead.pop()
        before = {edge.source for edge in graph.incoming(node_id)}.union(jumps.get(node_id, ())) - found
        ahead += before
        found |= before
    return found


HUMAN_GATE = "wait.human"
BOUNDS = ("max_visits", "max_steps")


def loop_bounded(subject: Subject) -> Iterator[Problem]:
    """No loop asks a model again and again with nothing that ends it.

    What ends it: `max_visits` or `max_steps` of the graph, `max_visits` of a node of the loop, or a human
    gate there, where a person sees each round. An edge with `loop_restart` begins another run, and a goal
    gate has its own count.
    """
    graph = subject.graph
    if any(key in graph.attrs for key in BOUNDS):
        return
    unbounded = {
        node.id for node in graph.nodes.values() if node.kind != HUMAN_GATE and "max_visits" not in node.attrs
    }
    ways = {
        node_id: tuple(
            edge.target
            for edge in graph.outgoing(node_id)
            if edge.target in unbounded and edge not in graph.restarts
        )
        for node_id in graph.nodes
        if node_id in unbounded
    }
    for loop in components(ways):
        agents = [name for name in graph.nodes if name in loop and graph.nodes[name].kind == DEFAULT_KIND]
        if agents and (len(loop) > 1 or agents[0] in ways[agents[0]]):
            names = listed([repr(name) for name in graph.nodes if name in loop])
            message = (
                f"nothing ends the loop of {names} if its condition is never true: it calls its model again"
            )
            yield about(graph.nodes[agents[0]], message, fix="write graph [max_visits=10]")


MANAGER = "stack.manager_loop"
CHILD = "stack.child_dotfile"


def parallel_join(subject: Subject) -> Iterator[Problem]:
    """A parallel node has branches, and they meet at a fan-in."""
    graph = subject.graph
    fix = "route all branches to one node with shape=tripleoctagon"
    for node_id, join in joins(graph).items():
        node = graph.nodes[node_id]
        if not graph.outgoing(node_id):
            yield about(node, f"parallel node {node_id!r} has no branches", fix="add an edge for each branch")
        elif join is None:
            message = f"no common end was found for the branches of parallel node {node_id!r}"
            yield about(node, message, fix=fix)
        elif join == graph.exit_id:
            message = f"the branches of parallel node {node_id!r} share no fan-in; they end at the exit"
            yield about(node, message, fix=fix)


def fan_in_has_parallel(subject: Subject) -> Iterator[Problem]:
    """A parallel node leads to every fan-in."""
    graph = subject.graph
    fan_ins = [node for node in graph.nodes.values() if node.kind == FAN_IN]
    parallels = [node.id for node in graph.nodes.values() if node.kind == PARALLEL]
    reached = graph.after(parallels) if fan_ins else set()
    for node in fan_ins:
        if node.id not in reached:
            message = f"no parallel node leads to fan-in {node.id!r}; it has nothing to join"
            yield about(node, message, fix="add a node with shape=component before it, or use another shape")


def manager_loop_child(subject: Subject) -> Iterator[Problem]:
    """A manager loop names the pipeline that it manages."""
    graph = subject.graph
    for node in graph.nodes.values():
        if node.kind == MANAGER and not (node.text(CHILD) or graph.text(CHILD)):
            message = f"manager loop {node.id!r} has no pipeline to manage"
            yield about(node, message, fix=f'write graph [{CHILD}="child.dot"]')


ROUTE_SHOWN_MAX = 8
ROUTE_LOOKED_MAX = 50
"""How far back to look for the hop that only the branch can take."""


def branch_restart(subject: Subject) -> Iterator[Problem]:
    """No branch takes an edge with `loop_restart`: a branch cannot end its run."""
    graph = subject.graph
    branches = branches_of(graph) if graph.restarts else None
    for hop in map(Hop.by, graph.restarts):
        takers = list(branches.taking(hop)) if branches else []
        branch = next((branch for branch in takers if branch.fan_out is not None), None)
        if branch is None or hop.edge is None:
            continue
        ends_the_branch = hop.target in (branch.join, graph.exit_id)
        what = "ends only that branch" if ends_the_branch else "cannot end the run"
        where = f"is inside a branch of {branch.fan_out!r}"
        message = f"the loop_restart edge {hop.source} -> {hop.target} {where} and {what}"
        problem = about(hop.edge, message, key="loop_restart", fix="restart after the fan-in")
        yield replace(problem, only_possible=ends_the_branch or takers[0] is not branch)


def fan_out_in_itself(subject: Subject) -> Iterator[Problem]:
    """No branch leads back to its own fan-out, which would open branches without end."""
    graph = subject.graph
    if not any(node.kind == PARALLEL for node in graph.nodes.values()):
        return
    branches = branches_of(graph)
    if branches is None:
        return
    knots = branches.knots()
    for branch in branches.of_fan_outs.values():
        for hop in branch.hops:
            if hop.target in branches.of_fan_outs and _comes_back(branches, knots, branch, hop):
                yield _back(subject, branches, branch, hop)


def _comes_back(branches: Branches, knots: Mapping[str, int], branch: BranchReach, hop: Hop) -> bool:
    """Whether the branch can be inside the fan-out that it reaches."""
    assert branch.fan_out is not None
    if hop.target == branch.fan_out:
        return True
    is_mutual = knots[hop.target] == knots[branch.fan_out]
    return is_mutual and hop.target in branches.opened_without(branch.fan_out)


def _back(subject: Subject, branches: Branches, branch: BranchReach, hop: Hop) -> Problem:
    """The problem, at the last hop that only the branch can take."""
    route = branch.route_to(hop)
    outside = branches.opened_without(hop.target)
    own = (
        each for each in reversed(route[1:][-ROUTE_LOOKED_MAX:]) if not branches.is_taken_in(outside, each)
    )
    culprit = next(own, hop)
    names = [route[0].source, *(each.target for each in route)]
    shown = names if len(names) <= ROUTE_SHOWN_MAX else [*names[:3], "...", *names[-3:]]
    message = f"a branch of {hop.target!r} leads back to it: {' -> '.join(shown)}"
    owner = culprit.edge or subject.graph.nodes[culprit.source]
    problem = about(owner, message, key=culprit.key or None, fix="route it to the fan-in or to another node")
    return replace(problem, only_possible=branches.is_taken_in(outside, hop))

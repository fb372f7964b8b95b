"""Rules about what a branch cannot do: end its run, or open the fan-out that it came from.

The planner refuses both when a run gets there, which may be hours later. Here they are errors if only those
branches can get there, and warnings if others can too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from onward.pipeline.branches import Branch, Branches, Hop, branches_of
from onward.pipeline.joins import PARALLEL
from onward.pipeline.rules.rule import Problem, Subject, about

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


def _comes_back(branches: Branches, knots: Mapping[str, int], branch: Branch, hop: Hop) -> bool:
    """Whether the branch can be inside the fan-out that it reaches."""
    assert branch.fan_out is not None
    if hop.target == branch.fan_out:
        return True
    is_mutual = knots[hop.target] == knots[branch.fan_out]
    return is_mutual and hop.target in branches.opened_without(branch.fan_out)


def _back(subject: Subject, branches: Branches, branch: Branch, hop: Hop) -> Problem:
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

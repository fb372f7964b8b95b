"""Rules about what a branch cannot do: end its run, or open the fan-out that it came from.

The planner refuses both when a run gets there, which may be hours later. Here they are errors if
nothing outside those branches can get there, and warnings if something can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from onward.pipeline.joins import PARALLEL
from onward.pipeline.lines import Hop, Line, Lines, lines_of
from onward.pipeline.rules.rule import Problem, Subject, about

WAY_SHOWN_MAX = 8
WAY_LOOKED_MAX = 50
"""How far back the place is looked for where a way becomes the branch's alone."""


def branch_restart(subject: Subject) -> Iterator[Problem]:
    """No branch takes an edge with `loop_restart`: it cannot end the run that it is a part of."""
    graph = subject.graph
    restarts = [hop for hop in map(Hop.by, graph.edges) if hop.restarts]
    lines = lines_of(graph) if restarts else None
    for hop in restarts:
        takers = list(lines.taking(hop)) if lines else []
        line = next((line for line in takers if line.fan_out is not None), None)
        if line is None or hop.edge is None:
            continue
        ends_the_branch = hop.target in (line.join, graph.exit_id)
        what = "ends only that branch" if ends_the_branch else "cannot end the run"
        where = f"is inside a branch of {line.fan_out!r}"
        message = f"the loop_restart edge {hop.source} -> {hop.target} {where} and {what}"
        problem = about(hop.edge, message, key="loop_restart", fix="restart after the fan-in")
        yield replace(problem, only_possible=ends_the_branch or takers[0] is not line)


def fan_out_in_itself(subject: Subject) -> Iterator[Problem]:
    """No branch leads back to its own fan-out, which would open as many again, without end."""
    graph = subject.graph
    if not any(node.kind == PARALLEL for node in graph.nodes.values()):
        return
    lines = lines_of(graph)
    if lines is None:
        return
    knots = lines.knots()
    for line in lines.branches.values():
        for hop in line.hops:
            if hop.target in lines.branches and _comes_back(lines, knots, line, hop):
                yield _back(subject, lines, line, hop)


def _comes_back(lines: Lines, knots: Mapping[str, int], line: Line, hop: Hop) -> bool:
    """Whether the branch can be inside the fan-out that it reaches."""
    assert line.fan_out is not None
    if hop.target == line.fan_out:
        return True
    is_mutual = knots[hop.target] == knots[line.fan_out]
    return is_mutual and hop.target in lines.opened_without(line.fan_out)


def _back(subject: Subject, lines: Lines, line: Line, hop: Hop) -> Problem:
    """The way back, at the last place where it is the branch's alone."""
    way = line.way_to(hop)
    outside = lines.opened_without(hop.target)
    own = (each for each in reversed(way[1:][-WAY_LOOKED_MAX:]) if not lines.is_taken_in(outside, each))
    culprit = next(own, hop)
    names = [way[0].source, *(each.target for each in way)]
    shown = names if len(names) <= WAY_SHOWN_MAX else [*names[:3], "...", *names[-3:]]
    message = f"a branch of {hop.target!r} leads back to it: {' -> '.join(shown)}"
    owner = culprit.edge or subject.graph.nodes[culprit.source]
    problem = about(owner, message, key=culprit.key or None, fix="route it to the fan-in or to another node")
    return replace(problem, only_possible=lines.is_taken_in(outside, hop))

"""Where a run would continue, by its receipts alone: for tools that have files and no database.

The engine never asks this: its log decides. The order comes from the plan and from what each receipt says
came before it, never from names, numbers in names, or the times of files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from onward.errors import InvalidInput
from onward.machine.definition import Definition
from onward.machine.plan.route import has_edges
from onward.model.ids import new_branch_id, step_id
from onward.pipeline.branches import PARALLEL
from onward.pipeline.graph import Graph
from onward.receipts.folder import Folder
from onward.receipts.reading import Committed, Finding, read_receipts
from onward.receipts.receipt import Receipt

Action = Literal["start", "continue", "retry", "stuck", "done"]


class ResumePoint(msgspec.Struct, frozen=True):
    """The first step in plan order that has no trusted receipt of an outcome; None when there is none.

    `open` are all such steps: several when branches are under way. `behind` is the last trusted step before.
    """

    step: str | None
    action: Action
    reason: str
    behind: str | None = None
    open: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def find_resume_point(
    receipts_directory: str | os.PathLike[str],
    plan: Graph,
    *,
    committed: Mapping[str, Committed] | None = None,
) -> ResumePoint:
    """Where the run continues whose receipts are in `RUN_BASE/<flow>/receipts`.

    Files alone can be one append ahead of the log. With `committed`, the receipts that the log confirms, no
    other is trusted, and the findings say which disagree and how.
    """
    above, _, _ = os.path.abspath(receipts_directory).rpartition(os.sep)
    base, _, flow = above.rpartition(os.sep)
    found = read_receipts(Folder(base or os.sep), (), flow, committed)
    walk = _Walk(Definition(plan), _behind(found.trusted.values()))
    points = walk.line("", plan.start_id, None)
    return _told(points, tuple(found.findings))


class _Point(msgspec.Struct, frozen=True):
    step: str | None
    action: Action
    reason: str
    behind: str | None


def _behind(receipts: Iterable[Receipt]) -> Mapping[tuple[str, str | None], list[Receipt]]:
    found: dict[tuple[str, str | None], list[Receipt]] = {}
    for receipt in receipts:
        found.setdefault((receipt.branch, receipt.previous), []).append(receipt)
    return found


def _told(points: list[_Point], findings: tuple[Finding, ...]) -> ResumePoint:
    first, steps = points[0], tuple(point.step for point in points if point.step is not None)
    return ResumePoint(first.step, first.action, first.reason, first.behind, steps, findings)


class _Walk(msgspec.Struct, frozen=True):
    """Follows each line from receipt to receipt, as far as they are trusted."""

    definition: Definition
    behind: Mapping[tuple[str, str | None], list[Receipt]]
    """The trusted receipts by line, and by the step that came before them there."""

    def line(self, line: str, first: str | None, join: str | None) -> list[_Point]:
        """What is to be done in a line of execution; nothing if it is a branch that has arrived."""
        last: Receipt | None = None
        while (after := self._after(line, last)) is not None:
            if not after.is_finished:
                why = f"{after.step_id} was {after.status}" + (f": {after.error}" if after.error else "")
                return [_Point(after.step_id, "retry", why, None if last is None else last.step_id)]
            last = after
        return self._next(line, last, first, join)

    def _after(self, line: str, last: Receipt | None) -> Receipt | None:
        """The step behind `last`; of several, one with an outcome, and the newest."""
        previous, since = (None, 0) if last is None else (last.step_id, last.sequence)
        found = [receipt for receipt in self.behind.get((line, previous), ()) if receipt.sequence > since]
        return max(found, key=lambda receipt: (receipt.is_finished, receipt.sequence), default=None)

    def _next(self, line: str, last: Receipt | None, first: str | None, join: str | None) -> list[_Point]:
        node, behind = first, None
        if last is not None:
            assert last.routing is not None
            node, behind = last.routing.to, last.step_id
            if last.routing.edge in self.definition.restarts:
                return [_Point(None, "done", f"behind {behind} another run began", behind)]
        if line and node in (None, join, self.definition.graph.exit_id):
            return []
        if node is None and last is not None and has_edges(self.definition, last.node):
            why = f"{behind} has finished, and none of its edges could be taken"
            return [_Point(None, "stuck", why, behind)]
        if node is None:
            return [_Point(None, "done", f"nothing leads on from {behind}", behind)]
        if node not in self.definition.graph.nodes:
            raise InvalidInput(
                f"the receipts lead to the node {node!r}, which the plan lacks; give the run's own pipeline."
            )
        step = step_id(node, self._visits(line, node) + 1, line)
        if self.definition.kind(node) == PARALLEL:
            inside = self._branches(step, node)
            if inside:
                return inside
        if behind is None and not line:
            return [_Point(step, "start", "no step has a trusted receipt", None)]
        why = f"{behind} leads to {node}" if behind else f"the branch begins with {node}"
        return [_Point(step, "continue", why, behind)]

    def _visits(self, line: str, node: str) -> int:
        found = (
            one for (at, _), some in self.behind.items() if at == line for one in some if one.node == node
        )
        return max((one.visit for one in found), default=0)

    def _branches(self, step: str, node: str) -> list[_Point]:
        """What is to be done in the branches of a fan-out, in the order of its edges."""
        if not any(line.startswith(f"{step}.") for line, _ in self.behind):
            return []
        points: list[_Point] = []
        seen: dict[str, int] = {}
        for edge in self.definition.graph.outgoing(node):
            number = seen[edge.target] = seen.get(edge.target, 0) + 1
            path = new_branch_id(step, edge.target, number)
            points += self.line(path, edge.target, self.definition.joins.get(node))
        return points

"""Receipts as they are found on disk: which can be trusted, and where a run would continue by them.

A file proves nothing by being there: it may be of another run, of another program, of an attempt that was
never committed. Without the log, what fits together is trusted; with it, only what the log stands for.

`find_resume_point` is for tools that have files and no database. The engine never asks this: its log decides.
The order comes from the plan and from what each receipt says came before it, never from names, numbers in
names, or the times of files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from onward.errors import InvalidInput
from onward.machine.definition import Definition
from onward.machine.plan.route import has_edges
from onward.model.ids import called, new_branch_id, step_id
from onward.pipeline.branches import PARALLEL
from onward.pipeline.graph import Graph
from onward.receipts.folder import HANDOFFS, MANIFEST, RECEIPTS, Folder, Path, is_finished_file, step_file
from onward.receipts.receipt import BYTES_MAX, Receipt, hash_of, read_handoff, read_receipt


class Committed(msgspec.Struct, frozen=True):
    """A receipt that the log stands for: the hash of its file, and the number of its event."""

    step: str
    hash: str
    sequence: int


class Finding(msgspec.Struct, frozen=True):
    """A file that is not trusted, or is not there.

    `kind` is one of wrong_schema, foreign, misnamed, duplicate, partial, stale, altered, missing, unreadable.
    """

    kind: str
    file: str
    says: str


class ReceiptsFound(msgspec.Struct):
    """What a directory of receipts holds: the trusted ones by file name, and what is wrong."""

    trusted: dict[str, Receipt] = msgspec.field(default_factory=dict)
    findings: list[Finding] = msgspec.field(default_factory=list)


def read_receipts(
    folder: Folder, at: Path, flow: str, committed: Mapping[str, Committed] | None = None
) -> ReceiptsFound:
    """The receipts of the flow directory `flow` in the run's directory `at`.

    `committed` are those that the log stands for, by file name; then nothing else is trusted.
    """
    found = ReceiptsFound()
    run_id, read = _run_id(folder, at), dict[str, tuple[Receipt, str]]()
    for name in filter(is_finished_file, _names(folder, (*at, flow, RECEIPTS), found)):
        try:
            content = folder.read((*at, flow, RECEIPTS), name, limit=BYTES_MAX) or b""
            read[name] = read_receipt(content, name), hash_of(content)
        except InvalidInput as error:
            found.findings.append(Finding("wrong_schema", name, str(error)))
        except OSError as error:
            found.findings.append(Finding("unreadable", name, f"{name}: {error.strerror or error}."))
    for name, (receipt, hash) in read.items():
        finding = _misfit(name, receipt, run_id, read) if committed is None else None
        if committed is not None:
            finding = _disagreement(name, receipt, hash, committed, run_id)
        if finding is None and receipt.is_finished:
            finding = _unfinished(folder, (*at, flow, HANDOFFS), name, receipt, hash)
        if finding is None:
            found.trusted[name] = receipt
        else:
            found.findings.append(finding)
    for name, expected in (committed or {}).items():
        if name not in read and all(finding.file != name for finding in found.findings):
            says = f"{name} is missing: the log has {expected.step} at event {expected.sequence}."
            found.findings.append(Finding("missing", name, says))
    return found


def _names(folder: Folder, parts: Path, found: ReceiptsFound) -> list[str]:
    try:
        return folder.names(parts)
    except OSError as error:
        path = folder.path(*parts)
        found.findings.append(Finding("unreadable", path, f"{path}: {error.strerror or error}."))
        return []


def _run_id(folder: Folder, at: Path) -> str:
    """Whose receipts belong here: the manifest says it, else the directory's own name."""
    try:
        manifest = msgspec.json.decode(folder.read(at, MANIFEST, limit=BYTES_MAX) or b"null")
        run_id = manifest["run_id"]
    except (OSError, msgspec.DecodeError, TypeError, KeyError):
        run_id = None
    return run_id if isinstance(run_id, str) else folder.path(*at).rstrip("/").rpartition("/")[2]


def _foreign(name: str, receipt: Receipt, run_id: str) -> Finding | None:
    if receipt.run_id == run_id:
        return None
    theirs, ours = called(receipt.run_id), called(run_id)
    return Finding(
        "foreign", name, f"{name} belongs to run {theirs} ({receipt.run_id}), not to {ours} ({run_id})."
    )


def _misfit(
    name: str, receipt: Receipt, run_id: str, read: Mapping[str, tuple[Receipt, str]]
) -> Finding | None:
    """What is wrong with a receipt as far as files alone can tell."""
    foreign = _foreign(name, receipt, run_id)
    if foreign is not None:
        return foreign
    if name != step_file(receipt.step_id, receipt.agent_key):
        return Finding("misnamed", name, f"{name} says that it belongs to step {receipt.step_id}.")
    others = [
        other for other, (rival, _) in read.items() if rival.step_id == receipt.step_id and other != name
    ]
    if others:
        says = (
            f"{name} and {', '.join(others)} both belong to step {receipt.step_id}; only the log can tell "
            "which is right."
        )
        return Finding("duplicate", name, says)
    return None


def _disagreement(
    name: str, receipt: Receipt, hash: str, committed: Mapping[str, Committed], run_id: str
) -> Finding | None:
    """What is wrong with a receipt by the log."""
    expected = committed.get(name)
    if expected is not None and expected.hash == hash:
        return None
    foreign = _foreign(name, receipt, run_id)
    if foreign is not None:
        return foreign
    if expected is None:
        rival = next((other for other, one in committed.items() if one.step == receipt.step_id), None)
        if rival is not None:
            return Finding(
                "duplicate", name, f"{name} belongs to {receipt.step_id}, whose receipt is {rival}."
            )
        return Finding(
            "partial", name, f"{name} belongs to {receipt.step_id}, which has not ended in the log."
        )
    if receipt.sequence < expected.sequence:
        says = (
            f"{name} belongs to event {receipt.sequence}; the step ended again at event {expected.sequence}."
        )
        return Finding("stale", name, says)
    if receipt.sequence > expected.sequence:
        return Finding(
            "partial", name, f"{name} refers to event {receipt.sequence}, which was never written."
        )
    return Finding("altered", name, f"{name} is not what event {receipt.sequence} of the log says.")


def _unfinished(folder: Folder, parts: Path, name: str, receipt: Receipt, hash: str) -> Finding | None:
    """A finished step has a handoff that names this very receipt."""
    try:
        content = folder.read(parts, name, limit=BYTES_MAX)
        if content is None:
            return Finding("partial", name, f"{name} records a finished step, and its handoff is missing.")
        if read_handoff(content, f"{HANDOFFS}/{name}").receipt_hash == hash:
            return None
    except InvalidInput as error:
        return Finding("wrong_schema", name, str(error))
    except OSError as error:
        return Finding("unreadable", name, f"{HANDOFFS}/{name}: {error.strerror or error}.")
    return Finding(
        "partial", name, f"the handoff of {receipt.step_id} belongs to another receipt than {name}."
    )


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
                return [_Point(None, "done", f"after {behind} another run started", behind)]
        if line and node in (None, join, self.definition.graph.exit_id):
            return []
        if node is None and last is not None and has_edges(self.definition, last.node):
            why = f"{behind} has finished, and none of its edges could be followed"
            return [_Point(None, "stuck", why, behind)]
        if node is None:
            return [_Point(None, "done", f"nothing follows after {behind}", behind)]
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
        why = f"{behind} leads to {node}" if behind else f"the branch starts with {node}"
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

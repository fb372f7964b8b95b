"""Branches whose work could not be merged at the end of their fan-out, and where it is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onward.cli.print.text import one_line
from onward.machine.plan.planner import CONFLICTS
from onward.model.events import Event, StepFinished
from onward.model.ids import branch_of
from onward.model.run import Run

FILES_SHOWN_MAX = 5


class Conflicts:
    """Remembers where the work of branches is kept, which the state of a run drops when a fan-out ends."""

    def __init__(self) -> None:
        self._refs: dict[tuple[str, str], str] = {}

    def note(self, run: Run, events: Sequence[Event]) -> None:
        """Remember the refs of all branches, including those that just ended."""
        if run.workspace is None:
            return
        for path, branch in run.branches.items():
            if branch.tree is not None:
                self._refs[run.id, path] = branch.tree.ref
        for event in events:
            if isinstance(event, StepFinished) and event.workspace is not None:
                self._refs[run.id, branch_of(event.step)] = event.workspace.ref

    def told(self, run: Run, event: StepFinished) -> Iterator[str]:
        """A clause for each branch that this step could not merge."""
        found = event.context.get(CONFLICTS) if run.workspace is not None else None
        for conflict in found or ():
            branch, files = str(conflict["branch"]), [str(file) for file in conflict["files"]]
            # If another process saw the branch end, only the prefix of its refs is known.
            ref = self._refs.get((run.id, f"{event.step}.{branch}")) or f"refs/onward/{run.id}/"
            where = f"{ref} in {run.workspace.repository}" if run.workspace is not None else ref
            yield f"branch {one_line(branch)} was not merged ({_named(files)}); its work is kept as {where}"


def _named(files: Sequence[str]) -> str:
    shown = ", ".join(one_line(file) for file in files[:FILES_SHOWN_MAX])
    more = len(files) - FILES_SHOWN_MAX
    return f"conflict in {shown}" + (f" and {more} more" if more > 0 else "")

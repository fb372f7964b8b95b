"""One step of a run in full: what it got, what came of it, and what it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onward.machine.fold.apply import apply
from onward.model.events import StepFinished, StepStarted
from onward.model.ids import branch_of, step_of_gate
from onward.model.run import Run
from onward.read.log.kinds import step_of
from onward.read.lookup import log_pages
from onward.store.codec import unseal
from onward.store.port.log import RunLog

Context = Mapping[str, Any]


class StepHistory(msgspec.Struct):
    """What the log says about one step, besides its projection.

    `before` is the context of its branch when it started, `after` the one that its outcome left.
    `recorded_in` is the run that recorded each try: a fork shares the steps of its parent. `pipeline_hash` is
    the definition that the last event of the step had.
    """

    before: Context = msgspec.field(default_factory=dict)
    after: Context | None = None
    finished: StepFinished | None = None
    recorded_in: list[str] = msgspec.field(default_factory=list)
    pipeline_hash: str = ""

    @property
    def changed(self) -> list[str]:
        """The context values that the step set, changed or removed."""
        after = self.after
        if after is None:
            return []
        keys = {*self.before, *after}
        return sorted(
            key
            for key in keys
            if key not in self.before or key not in after or self.before[key] != after[key]
        )


async def read_history(log: RunLog, run_id: str, step: str) -> StepHistory:
    """Fold the log as far as the step needs; the step must have started."""
    found, run, branch = StepHistory(), None, branch_of(step_of_gate(step))
    is_seen = False
    async for page in log_pages(log, run_id):
        for record in page:
            event = unseal(record)
            is_about = step_of(event) == step
            if is_about and not is_seen:
                is_seen = True
                found.before = _context(run, branch)
            run = apply(run, event, run_id=run_id, at_us=record.at_us, token=record.token)
            if not is_about:
                continue
            found.pipeline_hash = run.pipeline_hash
            if isinstance(event, StepStarted):
                found.recorded_in.append(record.run_id)
            elif isinstance(event, StepFinished):
                found.finished, found.after = event, _context(run, branch)
    return found


def _context(run: Run | None, branch: str) -> Context:
    return run.branches[branch].context.plain() if run is not None and branch in run.branches else {}

"""What a person may do about a run in which a step finished and none of its edges can be taken."""

from __future__ import annotations

from onward.errors import Refused
from onward.machine.definition import GATE, Definition
from onward.machine.plan.action import Stop
from onward.machine.plan.branch import plan_branch
from onward.machine.plan.ending import NO_WAY_ON
from onward.model.events.runs import RunFailed
from onward.model.ids import called, node_of, place_of
from onward.model.run import Run


def past_no_way(
    definition: Definition, run: Run, *, action: str | None, step: str | None, now_us: int
) -> str | None:
    """The node to continue at: that of the step for a retry, None if an edge of it can be taken now."""
    stopped = run.stopped_step
    node = node_of(place_of(stopped))
    if step not in (None, stopped, node):
        raise _refused(run, f"run {run.id} stopped after step {stopped}, not at {step!r}", may_retry=True)
    may_retry = node in definition.handler_kinds or definition.kind(node) == GATE
    match action:
        case "retry" if may_retry:
            return node
        case "retry":
            raise _refused(run, f"{node} only routes, so there is nothing to retry", may_retry=False)
        case None:
            _check_way(definition, run, may_retry, now_us)
            return None
        case _:
            said = f"step {stopped} has finished, so there is nothing to {action}"
            raise _refused(run, said, may_retry=may_retry)


def _check_way(definition: Definition, run: Run, may_retry: bool, now_us: int) -> None:
    """Refuse to continue only to stop at once for the same reason."""
    match plan_branch(definition, run, "", now_us):
        case Stop((RunFailed(reason="no_way_on", detail=detail),)):
            raise _refused(run, detail.rstrip("."), may_retry=may_retry)


def _refused(run: Run, what: str, *, may_retry: bool) -> Refused:
    again = "run the step again with --retry, " if may_retry else ""
    return Refused(
        NO_WAY_ON,
        f"{what}; correct the edges and resume with --accept-changes, {again}continue at another node with "
        f"--from NODE, or fork the run with other values: `onward replay {called(run.id)} "
        "--checkpoint SEQ --set KEY=VALUE`.",
        details={"step": run.stopped_step},
    )

"""What a resume would do, without doing it: the same checks, the same events, nothing written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onward.engine.log.reader import Folded
from onward.engine.log.write import applied
from onward.machine.decide.claim import HolderView
from onward.machine.decide.resume import ResumeRequest, decide_resume
from onward.machine.definition import Definition
from onward.machine.plan.action import Action
from onward.machine.plan.advance import advance
from onward.model.event import Event
from onward.model.leftovers import Left
from onward.model.run import Run


@dataclass(frozen=True, slots=True)
class Preview:
    """The run as it stands, what a resume would write at once, and the first thing it would then do."""

    run: Run
    notice: str
    events: Sequence[Event]
    action: Action
    left: Sequence[Left] = ()
    """What the steps in doubt left."""


def preview(
    definition: Definition, known: Folded, holder_view: HolderView, request: ResumeRequest, *, now_us: int
) -> Preview:
    """What this request would do; refuses what a resume would refuse."""
    decided = decide_resume(definition, known.run, holder_view, request)
    run, _ = applied(known.run, decided, run_id=known.run.id, at_us=now_us)
    ahead = advance(definition, run, (), now_us=now_us, stop_reason=None)
    return Preview(known.run, "", (*decided, *ahead.events), ahead.action)

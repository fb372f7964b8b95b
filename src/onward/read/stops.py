"""The stops of a run in words: why each happened, how long it took, what was kept, and who resumed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onward.machine.reasons import reason_of
from onward.model.run import Run, RunStatus, Stop
from onward.model.values import rfc3339
from onward.read.why import kept_words, paused_words, sentence, step_name

if TYPE_CHECKING:
    from onward.replies.runs import StopShown


def view_stops(run: Run) -> list[StopShown]:
    """The newest stops of a run, in order."""
    return [_view_stop(stop) for stop in run.stops]


def _view_stop(stop: Stop) -> StopShown:
    reason = reason_of(stop.reason)
    says = stop.detail or reason.says
    if reason.status is RunStatus.PAUSED:
        says = paused_words(stop.reason, stop.detail)
    elif reason.holder_died and stop.step and stop.step not in says:
        says = f"{says} in {step_name(stop.step)}"
    return {
        "seq": stop.seq,
        "reason": stop.reason,
        "says": sentence(says),
        "step": stop.step or None,
        "at": rfc3339(stop.at_us),
        "ended_at": None if stop.ended_at_us is None else rfc3339(stop.ended_at_us),
        "by": stop.by,
        "kept": kept_words(stop.steps, stop.answers, stop.cost_micro),
    }

"""`onward resume --dry-run`: what would be skipped, and what would run first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onward.cli.commands.start.foreground import Foreground
from onward.cli.exits import FINE
from onward.cli.print.leftovers import left_lines
from onward.cli.print.text import one_line, span
from onward.clock import SystemClock
from onward.engine.control.preview import Preview
from onward.engine.engine import Resume
from onward.engine.step.leftovers import view_left
from onward.machine.decide.answers import overdue
from onward.machine.plan.action import Execute, Sleep, Wait
from onward.model.event import (
    Event,
    GateDecided,
    GateOpened,
    PipelineChanged,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StepFinished,
    StepRouted,
)
from onward.model.run import Run, RunStatus
from onward.read.lookup import completed_of
from onward.read.view import dead_end

Planned = tuple[str, str, str]


async def preview_resume(desk: Foreground, run_id: str, how: Resume) -> int:
    """Print what a resume would skip and run; the checks are the same, and nothing is changed."""
    notice, plan, left = await _ahead(desk, run_id, how)
    completed = await completed_of(desk.engine.store.log, run_id)
    if notice:
        desk.out.note(notice)
    for step in completed:
        desk.out.say(f"SKIP  {one_line(step)}")
    for does, what, why in plan:
        desk.out.say(f"{does:<5} {one_line(what)}" + (f"  ({one_line(why)})" if why else ""))
    for line in left_lines(left):
        desk.out.say(line)
    desk.out.say("nothing was changed")
    if desk.out.is_json:
        ahead = [{"does": does.lower(), "what": what, "why": why} for does, what, why in plan]
        desk.out.value({"run": run_id, "skip": completed, "plan": ahead, "left": left, "notice": notice})
    return FINE


def is_asking(run: Run, how: Resume) -> bool:
    """Whether a resume of this run comes down to asking its questions: no deadline has answered them."""
    is_plain = how.action is None and how.from_node is None
    return run.status is RunStatus.WAITING and is_plain and not overdue(run, SystemClock().now_us())


async def _ahead(
    desk: Foreground, run_id: str, how: Resume
) -> tuple[str, list[Planned], list[dict[str, Any]]]:
    known = (await desk.engine.journal.load(run_id)).run
    if is_asking(known, how):
        asked = [gate for gate in known.gates.values() if gate.decided is None]
        return "", [("ASK", gate.gate, gate.text) for gate in asked], []
    seen = await desk.engine.preview_resume(run_id, how)
    return seen.notice, list(_plan(seen)), [view_left(left) for left in seen.left]


def _plan(seen: Preview) -> Iterator[Planned]:
    """What would happen first: up to the next effect, which decides the rest."""
    for event in seen.events:
        yield from _planned(event)
    match seen.action:
        case Execute(started):
            yield "RUN", started.step, f"attempt {started.attempt}"
        case Wait(starts):
            for started in starts:
                yield "RUN", started.step, f"attempt {started.attempt}"
        case Sleep(until_us, step):
            left_s = (until_us - SystemClock().now_us()) / 1_000_000
            yield "WAIT", step, f"its next attempt is due in {span(left_s)}"


def _planned(event: Event) -> Iterator[Planned]:
    match event:
        case PipelineChanged():
            yield "USE", event.pipeline_hash[:12], f"instead of {event.before[:12]}"
        case StepFinished():
            yield "PASS", event.step, event.outcome.status.value
        case StepRouted():
            yield "TAKE", event.step, f"the edge to {event.next.to}"
        case GateOpened():
            yield "ASK", event.gate, event.text
        case GateDecided():
            what = "rejected" if event.rejected else event.choice.label
            yield "TAKE", event.gate, f"{what}: nobody answered in time"
        case RunCompleted():
            yield "END", "completed", dead_end(event.ended_at) if event.ended_at else ""
        case RunFailed():
            yield "END", "failed", event.detail
        case RunCancelled():
            yield "END", "cancelled", ""

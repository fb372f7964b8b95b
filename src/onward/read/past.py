"""What happened before a step, and the summary of it that a new agent session gets.

The past is what the end of the log shows. That of a branch includes the past of the branches around it, but
not what its siblings do at the same time. Times are left out, so that the same log always gives the same
past.

The summary (`preamble`) is a text for each fidelity except `full`. It depends on the past alone, so it is
the same every time. It is never longer than its mode allows: what does not fit is shortened or left out,
and the text says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from onward.model import events as ev
from onward.model.context import CURRENT_NODE, GRAPH, INTERNAL, OUTCOME, PREFERRED_LABEL
from onward.model.gate import GateDecided
from onward.model.ids import branch_of, step_of_gate
from onward.model.run import Frozen, Run
from onward.read.log import step_of


class Stage(Frozen, frozen=True, kw_only=True):
    """A finished step: its outcome, its words, and which context values it changed."""

    step: str
    node: str
    status: str
    attempt: int = 1
    notes: str = ""
    reason: str = ""
    log: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Past(Frozen, frozen=True, kw_only=True):
    """Stages and notable events before a step, oldest first. `is_whole`: none are missing."""

    run_id: str
    goal: str
    values: Mapping[str, Any]
    steps_finished: int = 0
    stages: tuple[Stage, ...] = ()
    happened: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def tally(self) -> Mapping[str, int]:
        """How often each outcome is among the stages."""
        return Counter(stage.status for stage in self.stages)


def past_of(goal: str, run: Run, branch: str, events: Iterable[ev.Event], *, is_whole: bool) -> Past:
    """The past of a branch of a run; `events` are the last ones of its log."""
    around = _with_those_around(branch)
    stages: list[Stage] = []
    happened: list[str] = []
    for event in events:
        if _branch_with(event, run) not in around:
            continue
        if isinstance(event, ev.StepFinished):
            if event.node != run.start_node:
                stages.append(_stage(event))
        elif sentence := _sentence(event):
            happened.append(sentence)
    return Past(
        run_id=run.id,
        goal=goal,
        values=run.branches[branch].context,
        steps_finished=run.steps_finished,
        stages=tuple(stages),
        happened=tuple(happened),
        is_whole=is_whole,
    )


def _with_those_around(branch: str) -> frozenset[str | None]:
    """A branch and those around it; None stands for the whole run."""
    found: set[str | None] = {None, branch}
    while branch:
        branch = branch_of(branch)
        found.add(branch)
    return frozenset(found)


def _branch_with(event: ev.Event, run: Run) -> str | None:
    """The branch in which an event happened; None if it happened to the whole run."""
    if isinstance(event, ev.BranchFinished):
        # While a fan-out is open, the end of one branch is not in the past of the others.
        is_open = any(event.branch in parallel.branches for parallel in run.parallels.values())
        return event.branch if is_open else branch_of(event.branch)
    step = step_of(event)
    return None if step is None else branch_of(step_of_gate(step))


def _stage(event: ev.StepFinished) -> Stage:
    outcome = event.outcome
    return Stage(
        step=event.step,
        node=event.node,
        status=outcome.status.value,
        attempt=event.attempt,
        notes=outcome.notes,
        reason=outcome.failure_reason,
        log=event.log,
        changed=(*event.context, *event.grown),
    )


def _sentence(event: ev.Event) -> str:
    """A sentence about an event that is no stage; empty if it is not notable."""
    match event:
        case ev.AttemptFailed():
            return f"attempt {event.attempt} of {event.step} failed: {event.reason}"
        case ev.AttemptInterrupted():
            return f"attempt {event.attempt} of {event.step} was stopped: {event.why}"
        case ev.StepStarted(degraded_from=mode) if mode:
            return f"{event.step} started with {event.fidelity} instead of {mode}: its session was gone"
        case ev.ParallelStarted():
            return f"{event.step} opened {len(event.branches)} branches"
        case ev.BranchFinished():
            return f"branch {event.branch} ended: {event.status}" + _because(event.reason)
        case GateDecided(expired=True):
            return f"{event.gate} got no answer in time" + _because(event.choice.label)
        case GateDecided():
            return f"{event.by} answered {event.gate}{_because(event.choice.label)}{_because(event.text)}"
        case ev.StepRouted():
            return f"{event.step} continued to {event.next.to} after the pipeline or the context changed"
        case ev.GoalRedirected():
            return f"went back to {event.next.to}: goal gate {event.gate} was unmet"
        case ev.PipelineChanged():
            return f"{event.by} changed the pipeline"
        case ev.WorkdirChanged():
            return f"{event.by} moved the run to the directory {event.workdir}"
        case ev.RunClaimed(lost=True):
            return "another process took over the run: its holder was lost"
        case ev.RunForked():
            return f"the run was forked from run {event.parent} at event {event.parent_seq}"
        case ev.RunResumed():
            return f"{event.by} resumed the run" + (f" from {event.from_node}" if event.from_node else "")
        case ev.RunPaused() | ev.RunInterrupted() | ev.RunFailed():
            return f"the run was {event.kind.removeprefix('Run').lower()} ({event.reason})" + _because(
                event.detail
            )
        case _:
            return ""


def _because(why: str) -> str:
    return f": {why}" if why else ""


CHARACTERS_A_TOKEN = 4
KEY_MAX = 80
_ENGINES_OWN = frozenset({OUTCOME, PREFERRED_LABEL, CURRENT_NODE})
_encode = msgspec.json.Encoder().encode


class Style(Frozen, frozen=True, kw_only=True):
    """What a mode includes: tokens in total, characters per value or remark, and which parts.

    `stages` and `happened` are the shares of the space that these parts may take; context gets the rest.
    """

    tokens: int
    value_max: int = 0
    remark_max: int = 0
    stages: float = 0.0
    happened: float = 0.0
    has_tally: bool = False
    has_logs: bool = False

    @property
    def characters(self) -> int:
        return self.tokens * CHARACTERS_A_TOKEN


STYLES: Mapping[str, Style] = {
    "truncate": Style(tokens=200),
    "compact": Style(tokens=1_000, value_max=200, stages=0.5),
    "summary:low": Style(tokens=600, value_max=80, stages=0.3, has_tally=True),
    "summary:medium": Style(
        tokens=1_500, value_max=400, remark_max=160, stages=0.4, happened=0.2, has_tally=True
    ),
    "summary:high": Style(
        tokens=3_000,
        value_max=2_000,
        remark_max=400,
        stages=0.4,
        happened=0.25,
        has_tally=True,
        has_logs=True,
    ),
}


def preamble(mode: str, past: Past) -> str:
    """The text for a step of this mode; empty under `full`, where the session itself has the history."""
    style = STYLES.get(mode)
    if style is None:
        return ""
    parts = [_head(past, style)]
    left = style.characters - len(parts[0])
    if style.has_tally:
        left = _add(parts, _tally(past), left)
    for share, part in ((style.stages, _stages), (style.happened, _happened)):
        if share:
            left = _add(parts, part(past, style, int(left * share)), left)
    if style.value_max:
        _add(parts, _values(past, style, left - 2), left)
    return "\n\n".join(parts)


def _add(parts: list[str], part: str, left: int) -> int:
    """Add a part unless it is empty or too long; returns the space that is left."""
    if not part or len(part) + 2 > left:
        return left
    parts.append(part)
    return left - len(part) - 2


def _head(past: Past, style: Style) -> str:
    goal = f"Goal: {_cut(past.goal, style.characters // 3)}\n" if past.goal else ""
    return f"{goal}Run: {past.run_id}"


def _tally(past: Past) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(past.tally.items())) or "none here"
    scope = "all stages" if past.is_whole else "the last stages"
    return (
        f"So far: steps finished: {past.steps_finished:,}; {scope}: {counts}; "
        f"notable events: {len(past.happened)}."
    )


def _stages(past: Past, style: Style, room: int) -> str:
    newest_first = [_stage_line(stage, style) for stage in reversed(past.stages)]
    title, rest = "Completed stages:", "earlier stages are left out"
    return _section(title, newest_first, room, rest, is_backwards=True, more=not past.is_whole)


def _stage_line(stage: Stage, style: Style) -> str:
    visit = stage.step.rpartition("#")[2]
    told = stage.node + (f" (visit {visit})" if visit != "1" else "") + f": {stage.status}"
    if not style.remark_max:
        return told
    tries = f", attempt {stage.attempt}" if stage.attempt > 1 else ""
    remarks = [stage.reason, stage.notes, *(stage.log if style.has_logs else ())]
    return told + tries + "".join(f"; {_cut(remark, style.remark_max)}" for remark in remarks if remark)


def _happened(past: Past, style: Style, room: int) -> str:
    newest_first = [_cut(told, style.remark_max) for told in reversed(past.happened)]
    title, rest = "Notable events:", "earlier events are left out"
    return _section(title, newest_first, room, rest, is_backwards=True, more=not past.is_whole)


def _values(past: Past, style: Style, room: int) -> str:
    keys = _by_importance(past)
    # If the values do not all fit at full length, shorten all of them before leaving any out.
    value_max = min(style.value_max, max(40, room // max(1, len(keys)) - KEY_MAX // 2))
    lines = [f"{_cut(key, KEY_MAX)} = {_shown(past.values[key], value_max)}" for key in keys]
    return _section("Context:", lines, room, "other values are left out")


def _by_importance(past: Past) -> list[str]:
    """The keys that changed last come first, then the others by name; the engine's own are left out."""
    changed = dict.fromkeys(key for stage in reversed(past.stages) for key in sorted(stage.changed))
    keys = dict.fromkeys((*(key for key in changed if key in past.values), *sorted(past.values)))
    return [key for key in keys if key not in _ENGINES_OWN and not key.startswith((GRAPH, INTERNAL))]


def _section(
    title: str,
    lines: Sequence[str],
    room: int,
    left_out: str,
    *,
    is_backwards: bool = False,
    more: bool = False,
) -> str:
    """The first lines that fit under a title. `more`: there are others that were not given."""
    rest = f"- {left_out}"
    room -= len(title) + len(rest) + 1
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 3
        if room < 0:
            break
        kept.append(f"- {line}")
    if not kept:
        return ""
    if more or len(kept) < len(lines):
        kept.append(rest)
    return "\n".join((title, *(reversed(kept) if is_backwards else kept)))


def _shown(value: Any, length: int) -> str:
    """A value on one line."""
    if isinstance(value, str):
        return _cut(value, length)
    text = _encode(value).decode()
    if len(text) <= length:
        return _cut(text, length)
    items = f"{len(value):,} items, " if isinstance(value, list | dict) else ""
    return _cut(text, length, f"… ({items}{len(text):,} characters)")


def _cut(text: str, length: int, size: str = "") -> str:
    """`text` on one line of at most `length` characters; if it is cut, its size is added."""
    line = _one_line(text[: length + 1])
    if len(line) <= length and len(text) <= length:
        return line
    size = size or f"… ({len(text):,} characters)"
    return line[: max(0, length - len(size))] + size


def _one_line(text: str) -> str:
    """The text with control characters escaped, so that it stays on one line and harms no terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

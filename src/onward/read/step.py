"""One step of a run in full: what it got, what came of it, what it changed, and the calls inside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from onward.machine.lifecycle import apply
from onward.model.call import CallFinished, CallLost, CallStarted, Reserved, Usage
from onward.model.events import StepFinished, StepStarted
from onward.model.ids import branch_of, step_of_gate
from onward.model.run import Frozen, Run
from onward.read.log import step_of
from onward.read.lookup import log_pages
from onward.store.codec import unseal
from onward.store.port.log import TAIL_MAX, RunLog

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


CALL_KINDS = frozenset(kind.__name__ for kind in (CallStarted, CallFinished, CallLost))
OPEN, LOST = "open", "lost"


class CallSeen(Frozen, frozen=True, kw_only=True):
    """One try of a call: `state` is open, ok, error or lost. A call in one append has no start of its own.

    `by` is the person who said what a lost call had answered. `estimated` is what the call was charged if
    what it cost is not known: what it had reserved. `shortened_to` is the ceiling that a limit left for its
    answer; `note` is what is odd about it.
    """

    step: str
    call: str
    number: int
    type: str
    name: str
    state: str
    repeatable: bool = True
    attempt: int = 0
    began_at_us: int | None = None
    ended_at_us: int | None = None
    duration_us: int | None = None
    model: str = ""
    usage: Usage | None = None
    cost_micro: int | None = None
    request_id: str = ""
    error: str = ""
    value_blob: str = ""
    by: str = ""
    reserved: Reserved | None = None
    estimated: Reserved | None = None
    shortened_to: int = 0
    about: str = ""
    note: str = ""


async def read_calls(log: RunLog, run_id: str, *, after: int = 0, step: str | None = None) -> list[CallSeen]:
    """Every try of every call after an event, in the order in which they began; of one step, or of all."""
    seen: dict[tuple[str, str, int], CallSeen] = {}
    while page := await log.read(run_id, after=after, limit=TAIL_MAX):
        after = page[-1].seq
        for record in page:
            if record.kind in CALL_KINDS:
                event = unseal(record)
                assert isinstance(event, CallStarted | CallFinished | CallLost)
                if step is None or event.step == step:
                    _note_call(seen, event, record.at_us)
    return list(seen.values())


def _note_call(
    seen: dict[tuple[str, str, int], CallSeen], event: CallStarted | CallFinished | CallLost, at_us: int
) -> None:
    key = (event.step, event.call, event.number)
    match event:
        case CallStarted():
            seen[key] = CallSeen(
                step=event.step,
                call=event.call,
                number=event.number,
                type=event.type,
                name=event.name,
                state=OPEN,
                repeatable=event.repeatable,
                attempt=event.attempt,
                began_at_us=at_us,
                model=event.model,
                reserved=event.reserved,
                shortened_to=event.shortened_to,
                about=event.about,
            )
        case CallFinished():
            known = seen.get(key) or CallSeen(
                step=event.step,
                call=event.call,
                number=event.number,
                type=event.type,
                name=event.name,
                state=OPEN,
                attempt=event.attempt,
                about=event.about,
            )
            seen[key] = _finished_call(known, event, at_us)
        case CallLost():
            known = seen[key]
            seen[key] = replace(
                known, state=LOST, ended_at_us=at_us, error=event.why, estimated=known.reserved
            )


def _finished_call(known: CallSeen, event: CallFinished, at_us: int) -> CallSeen:
    return replace(
        known,
        state=event.status.value,
        ended_at_us=at_us,
        duration_us=event.duration_us,
        model=event.model or known.model,
        usage=event.usage,
        cost_micro=event.cost_micro,
        request_id=event.request_id,
        error=event.error,
        note=event.note,
        value_blob=event.value_blob,
        by=event.by,
        # A person who says what a lost call answered does not say what it cost.
        estimated=known.reserved if event.is_cost_unknown else known.estimated,
    )

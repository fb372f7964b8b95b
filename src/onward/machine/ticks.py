"""How far a run has come: its steps as ticks, which are a column of its row.

A tick is one step: a sign for its state, and its name. Steps come in the order in which they began, then
those that are still to come on the way that the run is likely to take (`path`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onward.model.events import StepStatus
from onward.model.ids import is_in_step, node_of, place_of
from onward.model.run import AttemptState, Run

TICKS_MAX = 40
_BEGUN_MIN = 20
"""How many steps that have begun are shown at least, however many are still to come."""
FINISHED, FAILED, SKIPPED, OPEN, WAITING, PLANNED = "+", "!", "-", "*", "?", "."
SIGNS = {
    FINISHED: "finished",
    FAILED: "failed",
    SKIPPED: "skipped",
    OPEN: "open",
    WAITING: "waiting",
    PLANNED: "planned",
}


class Tick(NamedTuple):
    """One step: its node, with the number of its visit if that is not the first, and its state."""

    step: str
    state: str


def tick(sign: str, step: str) -> str:
    """The tick of a step, which is called as short as possible."""
    node = node_of(place_of(step))
    visit = step.rpartition("#")[2]
    return f"{sign}{node}" if visit == "1" else f"{sign}{node}#{visit}"


def begun(ticks: dict[str, str], step: str) -> dict[str, str]:
    """The ticks with one more step, the oldest left out if there are too many."""
    if step in ticks or is_in_step(step):
        return ticks
    changed = {**ticks, step: tick(OPEN, step)}
    if len(changed) > TICKS_MAX:
        del changed[next(iter(changed))]
    return changed


def ended(ticks: dict[str, str], step: str, status: StepStatus) -> dict[str, str]:
    """The ticks when a step has its outcome."""
    sign = _SIGN_OF.get(status, FINISHED)
    known = ticks.get(step)
    if known is not None:
        return {**ticks, step: sign + known[1:]}
    changed = {**ticks, step: tick(sign, step)}
    if len(changed) > TICKS_MAX:
        del changed[next(iter(changed))]
    return changed


_SIGN_OF = {StepStatus.FAIL: FAILED, StepStatus.SKIPPED: SKIPPED}


def ticks_text(run: Run) -> str:
    """The column: how many steps the run is likely to have, then a tick for each that is shown."""
    known = run.ticks
    shown = [text if text[0] != OPEN else _open_sign(run, step) + text[1:] for step, text in known.items()]
    ahead = () if run.is_final else _ahead(run)
    opened = sum(text[0] in "*?" for text in shown)
    planned = run.steps_finished + opened + len(ahead)
    if ahead:
        room = max(_BEGUN_MIN, TICKS_MAX - len(ahead))
        shown = shown[-room:]
        shown += [f"{PLANNED}{node}" for node in ahead[: TICKS_MAX - len(shown)]]
    return " ".join((str(planned), *shown))


def _open_sign(run: Run, step: str) -> str:
    opened = run.open_steps.get(step)
    if opened is not None:
        return FAILED if opened.state is AttemptState.FAILED else OPEN
    if step in run.gates:
        return WAITING
    return OPEN if step in run.parallels else SKIPPED


def _ahead(run: Run) -> Sequence[str]:
    """The nodes of the likely way that are still to come."""
    plan, at = run.plan, run.branches[""].next_node
    if not plan or at is None:
        return ()
    after: list[str] = []
    """The nodes that began after the one that the run stands before, in branches that it opened."""
    is_begun = False
    for step in reversed(run.ticks):
        node = node_of(place_of(step))
        if node == at:
            is_begun = run.ticks[step][0] == OPEN
            break
        after.append(node)
    if at in plan:
        ahead = plan[plan.index(at) + is_begun :]
        return [node for node in ahead if node not in after] if is_begun else ahead
    last = next((node for node in after if node in plan), None)
    return plan[plan.index(last) + 1 :] if last is not None else ()


def read_ticks(text: str) -> tuple[int, Sequence[Tick]]:
    """How many steps a run is likely to have, and the ticks, as the column has them."""
    planned, *ticks = text.split(" ") if text else ("0",)
    return int(planned), tuple(_read(ticks))


def _read(ticks: Sequence[str]) -> Iterator[Tick]:
    for one in ticks:
        yield Tick(one[1:], SIGNS.get(one[:1], "planned"))

"""How far a run has come: its steps as ticks, which are a column of its row.

A tick is one step: a sign for its state, and its name. Steps come in the order in which they began, then
those that are still to come on the way that the run is likely to take (`path`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onward.model.events import StepStatus
from onward.model.run import AttemptState, Run, Ticks

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


def begun(ticks: Ticks, step: str, node: str) -> Ticks:
    """The ticks with one more step, the oldest left out if there are too many."""
    if step in ticks.moving:
        return ticks
    return _bounded(ticks.settled, {**ticks.moving, step: f"{OPEN}{_short(step, node)}"})


def ended(ticks: Ticks, step: str, node: str, status: StepStatus) -> Ticks:
    """The ticks when a step has its outcome."""
    moving, settled = ticks.moving, ticks.settled
    one = f"{_SIGN_OF.get(status, FINISHED)}{_short(step, node)}"
    if not moving or (len(moving) == 1 and step in moving):  # nearly always
        return _bounded((*settled, one), {})
    moving = {**moving, step: one}
    while moving and moving[first := next(iter(moving))][0] != OPEN:
        settled = (*settled, moving.pop(first))
    return _bounded(settled, moving)


_SIGN_OF = {StepStatus.FAIL: FAILED, StepStatus.SKIPPED: SKIPPED}


def _short(step: str, node: str) -> str:
    """What a step is called in its tick."""
    return node if step.endswith("#1") else f"{node}#{step.rpartition('#')[2]}"


def _bounded(settled: tuple[str, ...], moving: dict[str, str]) -> Ticks:
    if len(settled) + len(moving) > TICKS_MAX:
        if settled:
            settled = settled[1:]
        else:
            del moving[next(iter(moving))]
    return Ticks(settled, moving)


def way_of(plan: Sequence[str]) -> tuple[str, ...]:
    """The nodes of the likely way as ticks, so that none is made anew with every step."""
    return tuple([f"{PLANNED}{node}" for node in plan])


def ticks_text(run: Run) -> str:
    """The column: how many steps the run is likely to have, then a tick for each that is shown."""
    shown, opened = [*run.ticks.settled], 0
    for step, one in run.ticks.moving.items():
        if one[0] == OPEN:
            sign = _open_sign(run, step)
            if sign in _UNDER_WAY:
                opened += 1
            one = f"{sign}{one[1:]}"
        shown.append(one)
    way, begins = ((), 0) if run.is_final else _ahead(run)
    to_come = len(way) - begins
    planned = run.steps_finished + opened + to_come
    if to_come:
        room = max(_BEGUN_MIN, TICKS_MAX - to_come)
        if len(shown) > room:
            shown = shown[-room:]
        shown += way[begins : begins + TICKS_MAX - len(shown)]
    return f"{planned} {' '.join(shown)}" if shown else str(planned)


_UNDER_WAY = (OPEN, WAITING)


def _open_sign(run: Run, step: str) -> str:
    opened = run.open_steps.get(step)
    if opened is not None:
        return FAILED if opened.state is AttemptState.FAILED else OPEN
    if step in run.gates:
        return WAITING
    return OPEN if step in run.parallels else SKIPPED


def _ahead(run: Run) -> tuple[Sequence[str], int]:
    """The ticks of the likely way, and the place from which on they are still to come."""
    way, at = run.way, run.branches[""].next_node
    if not way or at is None:
        return (), 0
    is_begun, after = _since(run.ticks, at)
    found = _place(way, f"{PLANNED}{at}", run.steps_finished)
    if found is None:
        known = (_place(way, f"{PLANNED}{node}") for node in after)
        last = next((place for place in known if place is not None), None)
        return ((), 0) if last is None else (way, last + 1)
    if is_begun and after:
        return [one for one in way[found + 1 :] if one[1:] not in after], 0
    return way, found + is_begun


def _place(way: Sequence[str], one: str, guess: int = 0) -> int | None:
    """Where a node is on the way. Where a run took it, it has finished as many steps as there are before."""
    if guess < len(way) and way[guess] == one:
        return guess
    return way.index(one) if one in way else None


def _since(ticks: Ticks, at: str) -> tuple[bool, Sequence[str]]:
    """Whether the newest step of the node is open, and the nodes that began after it, in branches that it
    opened, the newest first."""
    moving = ticks.moving
    if moving and moving[next(reversed(moving))] == f"{OPEN}{at}":  # nearly always
        return True, ()
    after: list[str] = []
    for one in reversed((*ticks.settled, *moving.values())):
        node = one[1:].partition("#")[0]
        if node == at:
            return one[0] == OPEN, after
        after.append(node)
    return False, after


def read_ticks(text: str) -> tuple[int, Sequence[Tick]]:
    """How many steps a run is likely to have, and the ticks, as the column has them."""
    planned, *ticks = text.split(" ") if text else ("0",)
    return int(planned), tuple(_read(ticks))


def _read(ticks: Sequence[str]) -> Iterator[Tick]:
    for one in ticks:
        yield Tick(one[1:], SIGNS.get(one[:1], "planned"))

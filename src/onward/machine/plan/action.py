"""What a plan can say: write something down, do something, wait, or stop."""

from __future__ import annotations

from onward.model.event import Event, StepStarted
from onward.model.run import Frozen


class Record(Frozen, frozen=True):
    """Write these down and plan again."""

    events: tuple[Event, ...]


class Execute(Frozen, frozen=True):
    """Write the start down, then do the effect."""

    started: StepStarted

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.started,)


class Sleep(Frozen, frozen=True):
    """Nothing to do before this instant."""

    until_us: int
    step: str
    events: tuple[Event, ...] = ()


class Wait(Frozen, frozen=True):
    """Effects are under way: begin `starts` beside them, end `halt`, and plan again when one is done.

    `until_us` is when there is something to do even if none is.
    """

    starts: tuple[StepStarted, ...] = ()
    halt: tuple[str, ...] = ()
    until_us: int | None = None
    events: tuple[Event, ...] = ()


class Restart(Frozen, frozen=True):
    """Make the run that takes over at `to`, then write down that this one ended as it."""

    to: str
    run_id: str
    events: tuple[Event, ...] = ()


class Merge(Frozen, frozen=True):
    """Begin `starts`, take over the work of the branches of `step`, then write down that they are joined."""

    step: str
    starts: tuple[StepStarted, ...] = ()
    events: tuple[Event, ...] = ()


class Stop(Frozen, frozen=True):
    """Write these down; the last of them lets go of the run."""

    events: tuple[Event, ...]


Action = Record | Execute | Sleep | Wait | Restart | Merge | Stop

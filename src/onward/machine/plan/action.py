"""What a plan can say: append events, execute something, wait, or stop."""

from __future__ import annotations

from onward.model.events.event import Event
from onward.model.events.steps import StepStarted
from onward.model.run import Frozen


class Append(Frozen, frozen=True):
    """Append these events and plan again."""

    events: tuple[Event, ...]


class Execute(Frozen, frozen=True):
    """Append the start, then execute the attempt."""

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
    """Attempts are under way: begin `starts` beside them, end `halt`, and plan again when one is done.

    Plan again at `until_us` even if none is done by then.
    """

    starts: tuple[StepStarted, ...] = ()
    halt: tuple[str, ...] = ()
    until_us: int | None = None
    events: tuple[Event, ...] = ()


class Restart(Frozen, frozen=True):
    """Create the run that continues at `to`, then append that this one ended as it."""

    to: str
    run_id: str
    events: tuple[Event, ...] = ()


class Merge(Frozen, frozen=True):
    """Begin `starts`, merge the work of the branches of `step`, then append that they are joined."""

    step: str
    starts: tuple[StepStarted, ...] = ()
    events: tuple[Event, ...] = ()


class Stop(Frozen, frozen=True):
    """Append these events; the last of them releases the run."""

    events: tuple[Event, ...]


Action = Append | Execute | Sleep | Wait | Restart | Merge | Stop

"""What a resume would do."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onward.machine.plan.action import Action
from onward.model.events import Event
from onward.model.result import Left
from onward.model.run import Run


class Preview(msgspec.Struct, frozen=True):
    """The run as it stands, what a resume would write at once, and the first thing it would then do."""

    run: Run
    notice: str
    events: Sequence[Event]
    action: Action
    left: Sequence[Left] = ()
    """What the steps in doubt left."""

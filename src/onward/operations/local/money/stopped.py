"""The limit that stopped a run, and what to raise so that the run continues."""

from __future__ import annotations

from typing import cast

from onward.engine.control.limits import still_held
from onward.model.run import Run
from onward.operations.replies.runs import LimitStop
from onward.read.view import view_limit
from onward.store.port.store import Store


async def limit_stop(store: Store, run: Run, now_us: int) -> LimitStop | None:
    """The limit that a stopped run waits for. The tables are read only for a run that waits for one."""
    shown = view_limit(run)
    if shown is None:
        return None
    held = await still_held(store, run, now_us)
    return cast("LimitStop", {**shown, "raise_to": None if held is None else held.argument})

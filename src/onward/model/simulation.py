"""How a run is simulated: what its steps answer instead of being executed."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.model.events.runs import RunCreated


class Simulation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is played instead of being executed, and what it answers.

    `script` has entries by node; a node without entries succeeds. With `real_tools` only agents are
    simulated: commands and the app's own handlers are executed.
    """

    script: dict[str, Any] = {}
    real_tools: bool = False


def simulation_of(created: RunCreated) -> Simulation | None:
    """The simulation that a run was created with; older events know only that of agents."""
    if created.simulation is None:
        return None
    return Simulation(script=created.simulation, real_tools=not created.simulates_tools)

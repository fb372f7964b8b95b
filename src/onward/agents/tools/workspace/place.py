"""Where the tools of a step work, and how long."""

from __future__ import annotations

import os

from onward.handlers.port import StepContext

SETTLING_S_MAX = 5.0
SETTLING_SHARE = 0.2


def workspace_of(step: StepContext) -> str:
    """The step's work tree; without one, the run's directory, or that of this process."""
    return step.workspace or step.workdir or os.getcwd()


def working_s(limit_s: float) -> float:
    """How long a process may work for a tool with this limit: ending it and telling of it take time, too."""
    return limit_s - min(SETTLING_S_MAX, limit_s * SETTLING_SHARE)

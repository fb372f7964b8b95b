"""Where the tools of a step work."""

from __future__ import annotations

import os

from onward.handlers.port import StepContext


def workspace_of(step: StepContext) -> str:
    """The step's work tree; without one, the run's directory, or that of this process."""
    return step.workspace or step.workdir or os.getcwd()

"""The environment variables that tell a command about its step."""

from __future__ import annotations

from onward.handlers.port import StepContext


def step_environment(step: StepContext) -> dict[str, str]:
    """The variables that name the step, and its directories if it has any."""
    told = {
        "ONWARD_RUN_ID": step.run_id,
        "ONWARD_STEP": step.step,
        "ONWARD_ATTEMPT": str(step.attempt),
        "ONWARD_IDEMPOTENCY_KEY": step.idempotency_key,
    }
    # A command cannot ask for its directory, so it gets one only if the step's files are kept anyway.
    if step.room.is_full and step.directory is not None and step.run_directory is not None:
        told |= {"ONWARD_STEP_DIR": step.directory, "ONWARD_RUN_DIR": step.run_directory}
    left = step.left
    if left is not None:
        told["ONWARD_CONTINUED"] = "1"
        if left.directory is not None:
            told["ONWARD_LEFT_DIR"] = left.directory
    if step.workspace is not None:
        told["ONWARD_WORKSPACE"] = step.workspace
    return told

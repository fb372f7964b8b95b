"""The environment variables that tell a command about its step."""

from __future__ import annotations

from collections.abc import Mapping

from onward.handlers.port import StepContext
from onward.model.context import OMITTED, context_variables, unset_in


def step_environment(step: StepContext) -> dict[str, str]:
    """The variables that name the step, its directories if it has any, and the values of the context."""
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
    return {**context_variables(step.values), **told}


def log_unset(step: StepContext, command: str, environment: Mapping[str, str]) -> None:
    """Log the context variables that a command names and does not get."""
    omitted = environment.get(OMITTED, "").split()
    for name in unset_in(command, environment):
        why = (
            "its value is too long, or two keys share the name"
            if name in omitted
            else "there is no such value"
        )
        step.log(f"the command names ${name}, which is not set: {why}")

"""A shell command, exactly as it is written in the pipeline file.

Nothing from a model or from the context is ever put into the command's text: what a command needs to
know about its step comes in its environment. Providers' keys do not.
"""

from __future__ import annotations

from collections.abc import Mapping

from onward.handlers.port import StepContext
from onward.model.result import Result
from onward.process import Finished, Spawn

STDERR_CHARACTERS = 500


class ToolHandler:
    """Runs `tool_command`; exit code 0 is success, and its output becomes `tool.output`."""

    keeps_time = True

    def __init__(self, spawn: Spawn, *, environment: Mapping[str, str], cwd: str | None = None) -> None:
        self._spawn, self._environment, self._cwd = spawn, dict(environment), cwd

    async def run(self, step: StepContext) -> Result:
        command = step.node.text("tool_command")
        if not command:
            reason = f"node {step.node.id!r} has no tool_command; write the command to run"
            return Result.fail(reason, retryable=False)
        finished = await self._spawn.run(
            command,
            env={**self._environment, **step_environment(step)},
            cwd=self._cwd,
            timeout_s=step.node.timeout_s,
        )
        output = {"tool.output": finished.stdout}
        if finished.exit_code == 0 and not finished.timed_out:
            return Result(context_updates=output)
        failed = Result.fail(_why(finished, step))
        return Result(status=failed.status, failure_reason=failed.failure_reason, context_updates=output)


def step_environment(step: StepContext) -> dict[str, str]:
    """What every command is told about the step it belongs to."""
    return {
        "ONWARD_RUN_ID": step.run_id,
        "ONWARD_STEP": step.step,
        "ONWARD_ATTEMPT": str(step.attempt),
        "ONWARD_IDEMPOTENCY_KEY": step.idempotency_key,
    }


def _why(finished: Finished, step: StepContext) -> str:
    if finished.timed_out:
        return f"timed out after {step.node.timeout_s:g} s"
    if finished.signal is not None:
        return f"ended by signal {finished.signal}"
    said = finished.stderr.strip()[-STDERR_CHARACTERS:]
    return f"exit code {finished.exit_code}" + (f": {said}" if said else "")

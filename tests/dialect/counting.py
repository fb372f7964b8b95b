"""The one effect of random programs: it counts, and stumbles or breaks as its node says."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from onward.handlers.port import StepContext
from onward.model.events import StepStatus
from onward.model.result import Result
from tests.conformance.handlers import Ledger


class Counting:
    """A handler that knows its node's attributes, its context, its step and its attempt, and nothing else."""

    keeps_time = False

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def run(self, step: StepContext) -> Result:
        self.ledger.note(step)
        # Branches overtake each other in ways that differ from program to program.
        for _ in range(sum(map(ord, step.step)) % 5):
            await asyncio.sleep(0)
        node = step.node
        if node.boolean("breaks"):
            return Result(
                StepStatus.FAIL, context_updates=_counted(step, "failures"), failure_reason="broken"
            )
        counter = node.text("counter")
        updates = _counted(step, counter, node.count("add") or 1)
        every = node.count("every")
        if every is not None:
            updates[f"again_{counter}"] = "no" if updates[f"count_{counter}"] % every == 0 else "yes"
        if node.boolean("unmet_once") and set(re.findall(r"#(\d+)", step.step)) == {"1"}:
            return Result(StepStatus.FAIL, context_updates=updates, failure_reason="not yet")
        stumbles = node.count("stumbles") or 0
        if step.attempt <= stumbles or stumbles > (node.max_retries or 0):
            return Result(StepStatus.RETRY, context_updates=updates, failure_reason="stumbled")
        return Result.success(**updates)


def _counted(step: StepContext, counter: str, add: int = 1) -> dict[str, Any]:
    number = step.get(f"count_{counter}", 0) + add
    return {f"count_{counter}": number, f"parity_{counter}": "odd" if number % 2 else "even"}

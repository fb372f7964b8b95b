"""The app that chaos workers run: effects that write down when they begin, outside of the database."""

from __future__ import annotations

import asyncio
import os
import random
import time

from onward import Onward, Result
from onward.handlers.port import StepContext

app = Onward()
LEDGER = os.environ.get("CHAOS_LEDGER", "/dev/null")


@app.handler("work")
async def work(step: StepContext) -> Result:
    """Note the beginning in one write, then take a moment."""
    line = f"{step.run_id} {step.step} {step.attempt} {time.time_ns() // 1000} {os.getpid()}\n"
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
    await asyncio.sleep(random.uniform(0.0, 0.05))
    count = step.get("count", 0) + 1
    if step.node.id == "flaky" and step.attempt == 1:
        return Result.retry("the first time never works")
    return Result.success(count=count, more="yes" if step.node.id == "again" and count < 3 else "no")

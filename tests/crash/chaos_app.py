"""The app that chaos workers run: effects that write down when they begin, outside of the database."""

from __future__ import annotations

import asyncio
import os
import random
import time

from onward import Onward, Result, ToolUse
from onward.handlers.port import StepContext
from tests.crash.chaos_tools import BEGIN, END, LOOK, PAY, SAID, note

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


async def _use(tool: str, use: ToolUse, seconds: float) -> None:
    note(BEGIN, tool, use.key)
    await asyncio.sleep(random.uniform(0.0, seconds))
    note(END, tool, use.key)


@app.tool
async def look(use: ToolUse) -> str:
    """Look something up; it may be repeated."""
    await _use(LOOK, use, 0.1)
    return "looked"


@app.tool(repeatable=False, approval=True)
async def pay(amount: int, use: ToolUse) -> str:
    """Pay; it must not be repeated, and a person must allow it."""
    await _use(PAY, use, 1.5)
    return SAID[PAY]

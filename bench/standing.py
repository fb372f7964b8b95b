"""The app of workers that are killed: its step writes down when it begins, and stands until it may go on."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from onward import Onward
from onward.handlers.port import StepContext

app = Onward()
HERE = Path(os.environ.get("STANDING", "."))


@app.handler("stand")
async def stand(step: StepContext) -> None:
    """Until there is a file of the run's name."""
    line = f"{step.run_id} {os.getpid()} {time.monotonic()}\n"
    descriptor = os.open(HERE / "ledger", os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)
    while not (HERE / step.run_id).exists():  # noqa: ASYNC110 - a file tells nobody that it is there
        await asyncio.sleep(0.01)

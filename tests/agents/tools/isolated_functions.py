"""Functions of the tests that another process imports; so it imports little."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from onward import IsolatedStep, ToolUse


def add(a: int, step: IsolatedStep, use: ToolUse, b: int = 2) -> dict[str, Any]:
    """Add two numbers."""
    print("it prints")
    step.log("added")
    return {"sum": a + b, "pid": os.getpid(), "key": use.key, "run": step.run_id}


def fail(how: str) -> None:
    """Fail in some way."""
    if how == "exit":
        sys.exit(3)
    if how == "gone":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError(f"not {how}")


def hang(place: str) -> None:
    """Never end."""
    if os.fork() == 0:
        os.setsid()
    (Path(place) / str(os.getpid())).touch()
    time.sleep(1000)

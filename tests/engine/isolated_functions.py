"""Functions that tests run in processes of their own: those are found by the name of this module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from onward import IsolatedStep, Result


def tell(step: IsolatedStep) -> dict[str, Any]:
    """Everything that a step is told, and that it is told it in another process."""
    print("on standard output")
    print("on standard error", file=sys.stderr)
    os.write(1, b"past every buffer\n")
    subprocess.run(["echo", "by a child"], check=True)
    step.log("a line for the log")
    return {
        "told": [step.run_id, step.step, step.node.id, step.attempt, step.idempotency_key, step.goal],
        "prompt": step.prompt,
        "color": step.node.text("color"),
        "context": {key: step.get(key) for key in ("city", "missing")},
        "is_same_process": os.getpid() == int(step.get("tester")),
        "stdin": sys.stdin.read(),
        "directory": step.directory,
        "cwd": os.getcwd(),
    }


def nothing(step: IsolatedStep) -> None:
    """Say nothing."""


def text(step: IsolatedStep) -> str:
    return "as it was said ✓\0"


def result(step: IsolatedStep) -> Result:
    return Result(notes="a note", preferred_label="left", context_updates={"x": 1}, log=("from the result",))


def large(step: IsolatedStep) -> dict[str, str]:
    return {"large": "✓" * 3_000_000}


def too_large(step: IsolatedStep) -> str:
    return "x" * (70 * 1024 * 1024)


def fails(step: IsolatedStep) -> None:
    raise ValueError("the card was refused")


def leaves(step: IsolatedStep) -> None:
    sys.exit("gone")


class Panic(BaseException):
    """As libraries in other languages raise it."""


def panics(step: IsolatedStep) -> None:
    raise Panic("index out of bounds")


def says_too_much(step: IsolatedStep) -> None:
    raise ValueError("x" * (70 << 20))


def forks(step: IsolatedStep) -> dict[str, str]:
    """Forgets to end the copy of itself, which returns, too."""
    copy = os.fork()
    if copy:
        os.waitpid(copy, 0)
    return {"said_by": "the copy" if copy == 0 else "the function"}


def forks_and_raises(step: IsolatedStep) -> dict[str, str]:
    copy = os.fork()
    if not copy:
        raise ValueError("in the copy")
    os.waitpid(copy, 0)
    return {"said_by": "the function"}


def breaks(step: IsolatedStep) -> None:
    print("a last word", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def no_json(step: IsolatedStep) -> dict[str, Any]:
    return {"when": {1, 2}}


def wrong_type(step: IsolatedStep) -> Any:
    return 7


def artifact(step: IsolatedStep) -> None:
    assert step.directory is not None
    Path(step.directory, "artifacts").mkdir(exist_ok=True)
    Path(step.directory, "artifacts", "found.txt").write_text("it")


def hangs(step: IsolatedStep) -> None:
    """Never return, with a child in a session of its own. The ledger gets the ids of both, at once."""
    ledger = Path(step.get("ledger"))
    before = ledger.read_text() if ledger.exists() else ""
    overlaps = [pid for pid in before.split() if Path("/proc", pid).exists()]
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    new = ledger.with_suffix(".new")
    new.write_text("overlap" if overlaps else f"{before}{os.getpid()} {child.pid} ")
    new.replace(ledger)
    threading.Event().wait()


def raises_a_value_error(step: IsolatedStep) -> None:
    print("a word before")
    raise ValueError("broken")

"""The process of an isolated function. `function` starts it by its path; no module imports it."""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    """Read a request, let the module that it names call its function, and answer."""
    received = sys.stdin.buffer.read()
    answers = os.dup(1)  # processes that the function starts do not inherit it
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    told, me = json.loads(received), os.getpid()
    sys.path[:] = told["path"]
    answer = importlib.import_module(told["by"]).answer_to(received)
    if os.getpid() != me:
        return  # a copy of the process, which the function has forked and not ended
    with open(answers, "wb") as file:
        file.write(answer)


if __name__ == "__main__":
    main()

"""The process of an isolated function. `isolated` starts it; no module imports it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onward.handlers.isolate.messages import Answer, Request


def main() -> None:
    """Read a request, call its function, and answer."""
    received = sys.stdin.buffer.read()
    answers = os.dup(1)  # processes that the function starts do not inherit it
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.path[:] = json.loads(received)["path"]

    from onward.handlers.isolate.messages import encoded

    answer = encoded(_call(received))
    with open(answers, "wb") as file:
        file.write(answer)


def _call(received: bytes) -> Answer:
    import msgspec

    from onward.errors import OnwardError
    from onward.handlers.isolate.messages import Answer, Request, outcome_of

    request = msgspec.json.decode(received, type=Request)
    lines = request.step.lines
    try:
        function = _found(request)
        return Answer(lines=lines, outcome=outcome_of(function(request.step), request.step.node.id))
    except OnwardError as error:
        return Answer(lines=lines, raised=str(error), retryable=False, **_where(error))
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Answer(lines=lines, raised=said.encode("utf-8", "replace").decode(), **_where(error))


def _where(error: BaseException) -> dict[str, Any]:
    from onward.handlers.output import traceback_of

    return {"error": type(error).__name__, "traceback": traceback_of(error)}


def _found(request: Request) -> Any:
    from onward.errors import InvalidInput

    found: object = importlib.import_module(request.module)
    for name in request.function.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise InvalidInput(f"the module {request.module} has no function {request.function!r}.")
    return found


if __name__ == "__main__":
    main()

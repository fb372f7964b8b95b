"""Calls an isolated handler, in its own process."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec

from onward.errors import InvalidInput, OnwardError
from onward.handlers.isolate.messages import Answer, Request, encoded, outcome_of
from onward.handlers.output import traceback_of


def answer_to(received: bytes) -> bytes:
    """What came of a request."""
    return encoded(_call(msgspec.json.decode(received, type=Request)))


def found(module: str, function: str) -> Any:
    """The function of this name; InvalidInput if the module has none."""
    value: object = importlib.import_module(module)
    for name in function.split("."):
        value = getattr(value, name, None)
    if not callable(value):
        raise InvalidInput(f"the module {module} has no function {function!r}.")
    return value


def _call(request: Request) -> Answer:
    lines = request.step.lines
    try:
        function = found(request.module, request.function)
        return Answer(lines=lines, outcome=outcome_of(function(request.step), request.step.node.id))
    except OnwardError as error:
        return Answer(lines=lines, raised=str(error), retryable=False, **_where(error))
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Answer(lines=lines, raised=said.encode("utf-8", "replace").decode(), **_where(error))


def _where(error: BaseException) -> dict[str, Any]:
    return {"error": type(error).__name__, "traceback": traceback_of(error)}

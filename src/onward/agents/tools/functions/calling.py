"""Uses an isolated function tool, in its own process."""

from __future__ import annotations

import inspect
from typing import Any, cast

import msgspec

from onward.agents.tools.functions.isolated import IsolatedAnswer, IsolatedUse
from onward.agents.tools.functions.signature import read_signature
from onward.agents.tools.functions.tool import answer_of, answer_of_error
from onward.agents.tools.port import ToolAnswer, ToolRefused, ToolRules, ToolUse
from onward.handlers.isolate.calling import found
from onward.handlers.isolate.messages import ANSWER_BYTES_MAX


def answer_to(received: bytes) -> bytes:
    """What came of a use."""
    request = msgspec.json.decode(received, type=IsolatedUse)
    answer = _used(request)
    lines = tuple(request.step.lines)
    sent = msgspec.json.encode(IsolatedAnswer(text=answer.text, is_error=answer.is_error, lines=lines))
    if len(sent) <= ANSWER_BYTES_MAX:
        return sent
    why = f"it returned {len(sent):,} bytes; at most {ANSWER_BYTES_MAX >> 20} MiB can be returned."
    return msgspec.json.encode(IsolatedAnswer(text=why, is_error=True, lines=lines))


def _used(request: IsolatedUse) -> ToolAnswer:
    try:
        function = found(request.module, request.function)
        # A function in another process has the plain values of its step.
        step = cast("Any", request.step)
        use = ToolUse(step, request.arguments, request.key, ToolRules())
        returned = function(**read_signature(function, request.function).convert(use))
    except ToolRefused as refused:
        return ToolAnswer(str(refused), is_error=True)
    except (Exception, SystemExit) as error:
        return answer_of_error(error)
    if inspect.iscoroutine(returned):
        returned.close()
        return ToolAnswer(
            "the tool returned something to wait for, which an isolated one cannot", is_error=True
        )
    return answer_of(returned)

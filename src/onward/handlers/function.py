"""A Python function as a handler."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import CoroutineType, FrameType
from typing import Any

from onward.errors import InvalidInput
from onward.handlers.plain import without_exit
from onward.handlers.port import StepContext
from onward.model.result import Result
from onward.threads import Culprit

Returned = Result | str | dict[str, Any] | None
Function = Callable[[StepContext], Returned | Awaitable[Returned]]
RESPONSE_CHARACTERS = 200


class FunctionHandler:
    """Calls a function: an async one in the event loop, any other in its own thread."""

    keeps_time = False

    def __init__(self, function: Function) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - the method, to see whether it is async
        )

    async def run(self, step: StepContext) -> Result:
        returned: Any
        if self._is_async:
            returned = self._function(step)
        else:
            returned = await step.functions.call(self._function, step)
        if isinstance(returned, CoroutineType) or inspect.isawaitable(returned):  # the second is slow
            # In a separate task only if there is a time limit: a task costs a third of a short step.
            if step.node.timeout_s is not None:
                returned = step.functions.attend(self.name, returned)
            returned = await returned
        return as_result(returned, step.node.id)

    @property
    def name(self) -> str:
        """What the function is called in its module."""
        name: str = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return name


def find_culprit(frame: FrameType) -> Culprit | None:
    """The async handler that is being executed in a thread, by the innermost frame of that thread."""
    at: FrameType | None = frame
    while at is not None:
        if at.f_code is FunctionHandler.run.__code__:
            handler, step = at.f_locals["self"], at.f_locals["step"]
            return _culprit(handler.name, step.run_id, step.step, (at, frame))
        if at.f_code is without_exit.__code__:
            run_id, _, step_id = at.f_locals["key"].partition("/")
            return _culprit(at.f_locals["name"], run_id, step_id, (at, frame))
        at = at.f_back
    return None


def _culprit(handler: str, run_id: str, step: str, stack: tuple[FrameType, FrameType]) -> Culprit:
    words = f"the handler {handler} of step {step} of run {run_id}"
    return Culprit(words, {"run": run_id, "step": step, "handler": handler}, *stack)


_NOTHING_SAID = Result(is_decided=False)


def as_result(returned: object, node_id: str) -> Result:
    """The Result for what a function returned: a Result, nothing, a text, or context updates."""
    match returned:
        case Result():
            return returned
        case None:
            return _NOTHING_SAID
        case str():
            return text_result(returned, node_id)
        case dict():
            return Result(context_updates=returned, is_decided=False)
        case _:
            raise InvalidInput(
                f"the handler of node {node_id!r} returned a {type(returned).__name__}; "
                "return a Result, a string, a dict of context updates, or None."
            )


def text_result(text: str, node_id: str) -> Result:
    """Success with a text, and the context keys that the dialect sets for it."""
    told = {"last_stage": node_id, "last_response": text[:RESPONSE_CHARACTERS]}
    return Result(context_updates=told, response=text, is_decided=False)

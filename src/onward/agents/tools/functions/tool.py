"""A function of a program as a tool: async ones in the event loop, plain ones in threads of their own."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from onward.agents.model.request import Tool
from onward.agents.tools.functions.signature import Signature, read_signature
from onward.agents.tools.port import AgentTool, Listed, ToolAnswer, ToolRefused, ToolRules, ToolUse
from onward.agents.tools.toolbox import is_allowed
from onward.clock import Clock, SystemClock, TookTooLong, within
from onward.errors import CallTimedOut, InvalidInput, OnwardError
from onward.handlers.calls import TIME_LIMIT
from onward.handlers.plain import PATIENCE_S
from onward.handlers.port import StepContext
from onward.model.values import Whole, shown
from onward.pipeline.graph import Node

NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What every provider takes as the name of a tool."""
MESSAGE_CHARACTERS = 2_000
_OUTPUT = Whole(1, 10_000_000)


class FunctionTool:
    """Calls a function with what a model gave, converted to the types of its parameters."""

    def __init__(
        self,
        function: Callable[..., Any],
        described: Tool,
        signature: Signature,
        rules: ToolRules,
        clock: Clock,
    ) -> None:
        self.described, self.rules = described, rules
        self._function, self._signature, self._clock = function, signature, clock
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - the method, to see whether it is async
        )

    async def run(self, use: ToolUse) -> ToolAnswer:
        """As the port says. A function that is late has as long to return as that of a step has."""
        words = self._signature.convert(use)
        limit_s = use.rules.time_limit_s
        patience_s = 0.0 if self._is_async else PATIENCE_S  # it is cancelled first, and waited for then
        ended = threading.Event()
        try:
            returned = await within(self._called(use.step, words, ended), limit_s + patience_s, self._clock)
        except TookTooLong:
            raise CallTimedOut(use.key, limit_s, is_running=not ended.is_set()) from None
        except ToolRefused:
            raise
        except InvalidInput as error:
            return answer_of_error(error)
        except OnwardError:
            raise  # of the run, not of the function: its lease, its store, its attempt
        except (Exception, SystemExit) as error:
            return answer_of_error(error)
        return answer_of(returned)

    async def _called(self, step: StepContext, words: Mapping[str, Any], ended: threading.Event) -> Any:
        function, name = self._function, self.described.name
        if self._is_async:
            return await step.functions.attend(name, _awaited(function(**words), ended))
        returned = await step.functions.call(_told(partial(function, **words), ended))
        if inspect.isawaitable(returned):
            ended.clear()
            return await step.functions.attend(name, _awaited(returned, ended))
        return returned


async def _awaited(work: Awaitable[Any], ended: threading.Event) -> Any:
    """What it returns; `ended` is set when it has, or was cancelled."""
    try:
        return await work
    finally:
        ended.set()


def _told(function: Callable[[], Any], ended: threading.Event) -> Callable[[], Any]:
    """The function, which sets `ended` when it has."""

    def called() -> Any:
        try:
            return function()
        finally:
            ended.set()

    return called


def function_tool(
    function: Callable[..., Any],
    *,
    rules: ToolRules,
    where: str,
    name: str | None = None,
    clock: Clock | None = None,
) -> FunctionTool:
    """The function as a tool; InvalidInput says why it cannot be one. `where` begins every message."""
    if isinstance(function, type) or not callable(function):
        raise InvalidInput(f"{where}: {shown(function)} is not a function, and a tool must be one.")
    named = name if name is not None else getattr(function, "__name__", "")
    if not isinstance(named, str) or not NAME.fullmatch(named):
        raise InvalidInput(
            f"{where}: {shown(named)} cannot be the name of a tool; use up to 64 letters, digits, _ and -, "
            "beginning with a letter: @app.tool(name='…')."
        )
    where = f"{where}: the tool {named!r}"
    text = inspect.getdoc(function) or ""
    if not text.strip():
        raise InvalidInput(
            f"{where} has no docstring; write one, since it tells the model what the tool is for."
        )
    _check_rules(rules, where)
    signature = read_signature(function, where)
    described = Tool(named, text.strip(), signature.schema)
    return FunctionTool(function, described, signature, rules, clock or SystemClock())


def _check_rules(rules: ToolRules, where: str) -> None:
    for name, value in (
        ("repeatable", rules.repeatable),
        ("approval", rules.approval),
        ("concurrent", rules.is_concurrent),
    ):
        if not isinstance(value, bool):
            raise InvalidInput(f"{where}: {name} is {shown(value)}; write True or False.")
    TIME_LIMIT.check(rules.time_limit_s, f"{where}: time_limit_s")
    _OUTPUT.check(rules.output_characters, f"{where}: output_characters")


def answer_of(returned: object) -> ToolAnswer:
    """A text as it is, anything else as JSON."""
    if isinstance(returned, ToolAnswer):
        return returned
    if isinstance(returned, str):
        return ToolAnswer(returned)
    try:
        return ToolAnswer(msgspec.json.encode(returned).decode())
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        kind = type(returned).__name__
        return ToolAnswer(f"the tool returned a {kind}, which cannot be shown as JSON", is_error=True)


def answer_of_error(error: BaseException) -> ToolAnswer:
    """What a function raised, without its traceback."""
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    told = told.encode("utf-8", "replace").decode()
    return ToolAnswer(told[:MESSAGE_CHARACTERS], is_error=True)


class FunctionTools:
    """The functions that a program registered, as a source of tools."""

    def __init__(self, tools: Mapping[str, AgentTool]) -> None:
        self._tools = tools

    def check_name(self, name: str, node: Node) -> bool:
        """As the port says."""
        return any(is_allowed(known, [name]) for known in self._tools)

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[AgentTool]:
        """As the port says."""
        return [tool for name, tool in self._tools.items() if is_allowed(name, names)]

    @property
    def origin(self) -> str:
        return "app"

    async def listed(self) -> Listed:
        return Listed([*self._tools.values()])

"""Functions of a program as tools: async ones in the event loop, plain ones in threads of their own.

A function's types are its schema: `Signature` says what it takes, and how arguments become Python values.
The schema is in one piece, because small models, and some providers, follow references badly.

An isolated function has its own process, which can be ended at any time, with everything that it started.
That process imports this file by the name in `IsolatedUse.by`, and calls `answer_to`.
"""

from __future__ import annotations

import inspect
import re
import threading
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

import msgspec

from onward.agents.model import Tool
from onward.agents.tools import port
from onward.agents.tools.toolbox import is_allowed
from onward.clock import Clock, SystemClock, TookTooLong, within
from onward.errors import CallTimedOut, InvalidInput, OnwardError, UnstorableValue
from onward.errors import told as error_told
from onward.handlers.asked import AskedTool
from onward.handlers.calls import TIME_LIMIT
from onward.handlers.function import (
    ANSWER_BYTES_MAX,
    Closed,
    Elsewhere,
    Importable,
    IsolatedStep,
    found,
    search_path,
    told,
    why_without,
)
from onward.handlers.port import StepContext
from onward.handlers.user_functions import PATIENCE_S
from onward.model.stored import as_stored
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
        rules: port.ToolRules,
        clock: Clock,
    ) -> None:
        self.described, self.rules = described, rules
        self._function, self._signature, self._clock = function, signature, clock
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - the method, to see whether it is async
        )

    async def run(self, use: port.ToolUse) -> port.ToolAnswer:
        """As the port says. A function that is late has as long to return as that of a step has."""
        words = self._signature.convert(use)
        limit_s = use.rules.time_limit_s
        patience_s = 0.0 if self._is_async else PATIENCE_S  # it is cancelled first, and waited for then
        ended = threading.Event()
        try:
            returned = await within(self._called(use.step, words, ended), limit_s + patience_s, self._clock)
        except TookTooLong:
            raise CallTimedOut(use.key, limit_s, is_running=not ended.is_set()) from None
        except port.ToolRefused:
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
    rules: port.ToolRules,
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


_registered: WeakKeyDictionary[Callable[..., Any], port.AgentTool] = WeakKeyDictionary()


def register_tool(function: Callable[..., Any], tool: port.AgentTool) -> None:
    """Remember as which tool a program registered a function: an agent that gets the function gets that."""
    with suppress(TypeError):  # what cannot be remembered is a tool by its name only
        _registered[function] = tool


def asked_tool(asked: AskedTool, where: str) -> port.AgentTool:
    """The function that an agent in a flow was given, as it was registered, or else as a tool of its own."""
    with suppress(TypeError):
        found = _registered.get(asked.function)
        if found is not None:
            return found
    rules = port.ToolRules(repeatable=asked.repeatable)
    if asked.time_limit_s is not None:
        rules = msgspec.structs.replace(rules, time_limit_s=asked.time_limit_s)
    return function_tool(asked.function, rules=rules, where=where, name=asked.name)


def _check_rules(rules: port.ToolRules, where: str) -> None:
    for name, value in (
        ("repeatable", rules.repeatable),
        ("approval", rules.approval),
        ("concurrent", rules.is_concurrent),
    ):
        if not isinstance(value, bool):
            raise InvalidInput(f"{where}: {name} is {shown(value)}; write True or False.")
    TIME_LIMIT.check(rules.time_limit_s, f"{where}: time_limit_s")
    _OUTPUT.check(rules.output_characters, f"{where}: output_characters")


def answer_of(returned: object) -> port.ToolAnswer:
    """A text as it is, anything else as JSON, by the rule of all stored values.

    The function has done its work, so what cannot be shown is no reason to use it again.
    """
    if isinstance(returned, port.ToolAnswer):
        return returned
    if type(returned) is str:
        return port.ToolAnswer(returned)
    try:
        return port.ToolAnswer(msgspec.json.encode(as_stored(returned, "its result")).decode())
    except UnstorableValue as error:
        return port.ToolAnswer(f"The tool succeeded, so do not use it again for this, but {error}")


def answer_of_error(error: BaseException) -> port.ToolAnswer:
    """What a function raised, without its traceback."""
    return port.ToolAnswer(error_told(error)[:MESSAGE_CHARACTERS], is_error=True)


class FunctionTools:
    """The functions that a program registered, as a source of tools."""

    def __init__(self, tools: Mapping[str, port.AgentTool]) -> None:
        self._tools = tools

    def check_name(self, name: str, node: Node) -> bool:
        """As the port says."""
        return any(is_allowed(known, [name]) for known in self._tools)

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[port.AgentTool]:
        """As the port says."""
        return [tool for name, tool in self._tools.items() if is_allowed(name, names)]

    @property
    def origin(self) -> str:
        return "app"

    async def listed(self) -> port.ListedTools:
        return port.ListedTools([*self._tools.values()])


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature(msgspec.Struct, frozen=True):
    """The parameters of a function that a model fills in, and those that get the step and the use."""

    schema: dict[str, Any]
    arguments: type[msgspec.Struct]
    ours: Mapping[str, type]

    def convert(self, use: port.ToolUse) -> dict[str, Any]:
        """The keywords to call the function with; ToolRefused says which argument does not fit."""
        try:
            converted = msgspec.convert(use.arguments, self.arguments)
        except msgspec.ValidationError as error:
            raise port.ToolRefused(f"the arguments do not fit: {error}") from None
        found = {name: getattr(converted, name) for name in self.arguments.__struct_fields__}
        words = {name: value for name, value in found.items() if value is not msgspec.UNSET}
        return words | {name: use if kind is port.ToolUse else use.step for name, kind in self.ours.items()}


def read_signature(function: Callable[..., Any], where: str) -> Signature:
    """The signature of a function; InvalidInput names the parameter that a model cannot be told of."""
    hints = _hints(function, where)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    ours: dict[str, type] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _NAMED:
            raise InvalidInput(f"{where}: the parameter {parameter} has no name; name every parameter.")
        if name not in hints:
            raise InvalidInput(
                f"{where}: the parameter {name!r} has no type; write one, such as {name}: str, "
                f"or {name}: StepContext for the step."
            )
        if hints[name] in (StepContext, IsolatedStep, port.ToolUse):
            ours[name] = hints[name]
            continue
        kind = _described(hints[name])
        _check_type(name, kind, where)
        if parameter.default is inspect.Parameter.empty:
            fields.append((name, kind))
        else:
            defaults[name] = parameter.default
            fields.append((name, Union[kind, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007 - not a type
    arguments = _struct(fields, where)
    return Signature(_schema(arguments, defaults), arguments, ours)


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        named = function if inspect.isroutine(function) else type(function).__call__
        return get_type_hints(named, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise InvalidInput(
            f"{where}: the types of its parameters{_culprit(function)} cannot be read ({error}); use types "
            "that are defined at the top level of its module."
        ) from None


def _culprit(function: Callable[..., Any]) -> str:
    """The parameter whose type cannot be read."""
    for name, written in getattr(function, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: written})
        try:
            get_type_hints(alone, getattr(function, "__globals__", {}))
        except Exception:
            return f", {name!r} first,"
    return ""


def _described(kind: Any) -> Any:
    """The type, with a text beside it as the description: `Annotated[str, "where it is"]`."""
    if get_origin(kind) is not Annotated:
        return kind
    inner, *notes = get_args(kind)
    for note in notes:
        text = note if isinstance(note, str) else None
        if isinstance(note, msgspec.Meta) or text is not None:
            inner = Annotated[inner, msgspec.Meta(description=text) if text is not None else note]
    return inner


def _check_type(name: str, kind: Any, where: str) -> None:
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        why = str(error).strip().splitlines()[-1]
        raise InvalidInput(
            f"{where}: no schema can be made for the parameter {name!r} ({why}); use strings, numbers, "
            "lists, dicts, Literal, enums, dataclasses, TypedDict or msgspec.Struct."
        ) from None


def _struct(fields: list[Any], where: str) -> type[msgspec.Struct]:
    try:
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where}: no schema can be made for its parameters ({error}).") from None


def _schema(arguments: type[msgspec.Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    schema = inlined(arguments)
    for name, default in defaults.items():
        try:
            plain = msgspec.to_builtins(default)
        except (TypeError, ValueError):
            continue  # a default that no model could give
        if plain is not None:
            schema["properties"][name] = {**schema["properties"][name], "default": plain}
    return schema


_AT = "#/$defs/"


def inlined(kind: Any, *, hook: Callable[[type], dict[str, Any]] | None = None) -> dict[str, Any]:
    """The schema of a type. `hook` gives those of types that msgspec does not know."""
    (root,), parts = msgspec.json.schema_components([kind], schema_hook=hook, ref_template=_AT + "{name}")
    return inlined_of(root, parts)


def inlined_of(root: Mapping[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """The schema with every part where it is used; only a part that holds itself stays under `$defs`."""
    kept: dict[str, Any] = {}
    schema: dict[str, Any] = _with_parts(dict(root), parts, (), kept)
    schema.pop("title", None)
    return {**schema, "$defs": kept} if kept else schema


def _with_parts(schema: Any, parts: dict[str, Any], inside: tuple[str, ...], kept: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_with_parts(one, parts, inside, kept) for one in schema]
    if not isinstance(schema, dict):
        return schema
    written = {key: _with_parts(value, parts, inside, kept) for key, value in schema.items()}
    target = schema.get("$ref")
    if not isinstance(target, str):  # a property may have this name
        return written
    name = target.removeprefix(_AT)
    if name in kept:
        return written
    if name in inside or _holds(parts[name], name, parts, set()):
        kept[name] = None  # so that it is not entered again
        kept[name] = _with_parts(parts[name], parts, (*inside, name), kept)
        return written
    del written["$ref"]
    return {**_with_parts(parts[name], parts, (*inside, name), kept), **written}


def _holds(schema: Any, name: str, parts: dict[str, Any], seen: set[str]) -> bool:
    """Whether a part leads back to `name`."""
    if isinstance(schema, list):
        return any(_holds(one, name, parts, seen) for one in schema)
    if not isinstance(schema, dict):
        return False
    target = schema.get("$ref")
    if isinstance(target, str):
        found = target.removeprefix(_AT)
        if found == name:
            return True
        if found not in seen:
            seen.add(found)
            if _holds(parts[found], name, parts, seen):
                return True
    return any(_holds(value, name, parts, seen) for value in schema.values())


class IsolatedUse(Closed, frozen=True, kw_only=True):
    """A use on its way to another process: which function, and what with."""

    path: list[str]
    by: str = "onward.agents.tools.functions"
    module: str
    function: str
    step: IsolatedStep
    arguments: dict[str, Any]
    key: str


class IsolatedAnswer(Closed, frozen=True, kw_only=True):
    """What came of it; `lines` are for the run's log."""

    text: str
    is_error: bool = False
    lines: tuple[str, ...] = ()


class IsolatedTool:
    """Uses a function in a child process; a time limit ends it at once."""

    def __init__(self, tool: FunctionTool, function: Importable, elsewhere: Elsewhere) -> None:
        self.described: Tool = tool.described
        self.rules: port.ToolRules = tool.rules
        self._function, self._elsewhere = function, elsewhere

    async def run(self, use: port.ToolUse) -> port.ToolAnswer:
        """As the port says. A process that ended without an answer may have done what it was for."""
        limit_s = use.rules.time_limit_s
        request = IsolatedUse(
            path=search_path(),
            module=self._function.module,
            function=self._function.function,
            step=told(use.step),
            arguments=use.arguments,
            key=use.key,
        )
        finished = await self._elsewhere.call(request, use.step, limit_s)
        if finished.timed_out:
            raise CallTimedOut(use.key, limit_s)
        try:
            answer = msgspec.json.decode(finished.stdout, type=IsolatedAnswer)
        except msgspec.MsgspecError:
            why = why_without(finished)
            if use.rules.repeatable:
                return port.ToolAnswer(why, is_error=True)
            raise port.CutOff(use.key, limit_s, why) from None
        for line in answer.lines:
            use.step.log(line)
        return port.ToolAnswer(answer.text, answer.is_error)


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


def _used(request: IsolatedUse) -> port.ToolAnswer:
    try:
        function = found(request.module, request.function)
        # A function in another process has the plain values of its step.
        step = cast("Any", request.step)
        use = port.ToolUse(step, request.arguments, request.key, port.ToolRules())
        returned = function(**read_signature(function, request.function).convert(use))
    except port.ToolRefused as refused:
        return port.ToolAnswer(str(refused), is_error=True)
    except BaseException as error:  # in its own process, whatever it raises is the function's
        return answer_of_error(error)
    if inspect.iscoroutine(returned):
        returned.close()
        return port.ToolAnswer(
            "the tool returned an awaitable, which an isolated tool cannot do", is_error=True
        )
    return answer_of(returned)

"""Flows and steps as a user writes them: `@flow` and `@step`, and a flow bound to its arguments.

Outside a flow a step is its function. A flow is called by an app, which keeps its run; what is handed over
is `build.bind(…)`, with the same types as a call.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property, partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

from onward.errors import InvalidInput
from onward.flows.durations import seconds_of
from onward.flows.running import Asked, FlowRun, asked_with, here, step_failed, written
from onward.flows.scope import Scope
from onward.handlers.calls import CallOptions
from onward.model.call import POSITIONAL, CallKind
from onward.model.stored import UnreadableType, as_declared, as_stored, check_returns
from onward.pipeline.flow_source import STEP, flow_kind, flow_source

P = ParamSpec("P")
R = TypeVar("R")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_CHARACTERS_MAX = 80
Parameters = inspect.Parameter


class Declared:
    """What a user's function declares: its parameters, and the types of its values."""

    def __init__(self, function: Callable[..., Any], local: Mapping[str, Any]) -> None:
        self.function = function
        self.signature = inspect.signature(function)
        self._local = local

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The parameters by position; None if some take any number."""
        kinds = [one.kind for one in self.signature.parameters.values()]
        if any(kind in (Parameters.VAR_POSITIONAL, Parameters.VAR_KEYWORD) for kind in kinds):
            return None
        return tuple(
            name for name, one in self.signature.parameters.items() if one.kind is not Parameters.KEYWORD_ONLY
        )

    @cached_property
    def types(self) -> Mapping[str, Any]:
        """The declared types by parameter; that of the result is `return`."""
        function = inspect.unwrap(self.function)
        try:
            return typing.get_type_hints(function, localns={**self._local}, include_extras=True)
        except Exception as error:
            raise InvalidInput(
                f"the types of {function.__qualname__} cannot be read ({error}); define them at the top "
                "level of a module that imports them."
            ) from None

    @cached_property
    def returns(self) -> Any:
        """The declared type of the result; Any without one."""
        found = self.types.get("return", Any)
        return None if found is type(None) else found

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments by parameter, however they were written; TypeError as for any call."""
        names = self.names
        if not kwargs and names is not None and len(args) == len(self.signature.parameters) == len(names):
            return dict(zip(names, args, strict=True))
        try:
            return self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.function.__name__}(): {error}") from None

    def arguments(
        self, what: str, values: Mapping[str, Any], *, is_text: bool = False, is_strict: bool = False
    ) -> dict[str, Any]:
        """The values that the function takes of these, as its types. `is_strict`: it takes them all."""
        parameters, types = self.signature.parameters, self.types
        there = ", ".join(parameters) or "none"
        for name in values if is_strict else ():
            if name not in parameters:
                raise InvalidInput(f"{what} has no parameter {name!r}; it has {there}.")
        found: dict[str, Any] = {}
        for name, parameter in parameters.items():
            if name in values:
                try:
                    found[name] = as_declared(values[name], types.get(name, Any), is_text=is_text)
                except ValueError as error:
                    raise InvalidInput(f"{name!r} of {what} does not fit: {error}.") from None
            elif parameter.default is Parameters.empty:
                raise InvalidInput(f"{what} needs a value for {name!r}; its parameters are {there}.")
        return found


class Step(Generic[P, R]):
    """A function whose result is recorded: in a flow it runs once, and a resumed flow gets the stored result.

    `once=True`: it must not be repeated after a crash in the middle, so then a person decides. `retries`:
    how often it is repeated after an error. `timeout`: such as "10m", for async functions.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retries: int = 0,
        timeout: str | float | None = None,
        once: bool = False,
        local: Mapping[str, Any] | None = None,
    ) -> None:
        self.function = function
        self.name = checked_name(name or function.__name__, "a step")
        self.declared = Declared(function, local or {})
        limit_s = None if timeout is None else seconds_of(timeout, f"timeout of step {self.name!r}")
        options = CallOptions(
            repeatable=not once,
            retries=retries,
            time_limit_s=limit_s,
            type=CallKind.STEP.value,
            name=self.name,
        )
        options.check(self.name, function)
        check_returns(function, f"step {self.name!r}")
        self.options = options
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__doc__, self.__module__, self.__wrapped__ = function.__doc__, function.__module__, function

    def __repr__(self) -> str:
        return f"<step {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R]:
        scope = here.get()
        if not isinstance(scope, Scope) and not inspect.iscoroutinefunction(self.function):
            try:
                asyncio.get_running_loop()
            except RuntimeError:  # nobody here could await it
                return self.function(*args, **kwargs)  # type: ignore[no-any-return]
        flow = scope.flow if isinstance(scope, Scope) else None
        return written(self.name, flow, self._called(args, kwargs, flow))

    async def _called(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], written_in: FlowRun | None = None
    ) -> R:
        if written_in is not None:
            written_in.not_awaited[self.name] -= 1
        scope = here.get()
        if not isinstance(scope, Scope):
            returned = self.function(*args, **kwargs)
            return await returned if inspect.isawaitable(returned) else returned  # type: ignore[no-any-return]
        assert scope.flow is not None
        return await self._in_flow(scope.flow, scope, args, kwargs)

    async def _in_flow(self, flow: FlowRun, scope: Scope, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        given = self.declared.given(args, kwargs)
        flow.check_awaited(self.name, given)
        asked = self.asked(given)
        key, past = flow.begin(scope, asked)
        returns = self.declared.returns
        if past is not None and flow.is_answer(scope, past):
            return await flow.replayed(scope, past, returns)  # type: ignore[no-any-return]
        work = flow.work(self, args, kwargs, returns)
        options = msgspec.structs.replace(self.options, inputs=asked.inputs, about=asked.about)
        answered = await flow.live(scope, key, work, options, past)
        if answered.error:
            raise step_failed(key, answered.error) from answered.cause
        return flow.fitting(answered.value, returns, key, 0)  # type: ignore[no-any-return]

    def check_answer(self, key: str, answer: Any) -> None:
        """Refuse an answer that a person gives in place of the step, if it declares something else."""
        try:
            as_declared(answer, self.declared.returns)
        except ValueError as error:
            kind = getattr(self.declared.returns, "__name__", str(self.declared.returns))
            raise InvalidInput(
                f"the answer of {key!r} must be {kind}, as its step declares: {error}; "
                f"say what it answered with --answer '{key}:=JSON'."
            ) from None

    @property
    def kind(self) -> str:
        """The name of its handler, for nodes of graphs."""
        return f"{STEP}{self.name}"

    def begun(self, arguments: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """The step, called in whatever flow this is awaited in."""
        return self._called((), dict(arguments))

    def asked(self, arguments: Mapping[str, Any]) -> Asked:
        """A call of the step with these arguments."""
        return asked_with(self.name, CallKind.STEP.value, arguments)


class StepDecorator(Protocol):
    """`@step(…)` with options."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(
    *, name: str | None = None, retries: int = 0, timeout: str | float | None = None, once: bool = False
) -> StepDecorator: ...


def step(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    retries: int = 0,
    timeout: str | float | None = None,
    once: bool = False,
) -> Any:
    """Make a function a recorded step of flows: `@step`, or `@step(retries=3, timeout="10m", once=True)`."""
    local = _names_around(sys._getframe(1))
    make: Any = partial(Step[Any, Any], name=name, retries=retries, timeout=timeout, once=once, local=local)
    return make if function is None else make(function)


class Bound(msgspec.Struct, Generic[R], frozen=True):
    """A flow with its arguments, as an app runs it."""

    flow: Flow[Any, R]
    inputs: Mapping[str, Any]


def checked_bound(given: object) -> Bound[Any]:
    """What was given, if it is a flow with its arguments; InvalidInput says what to write."""
    match given:
        case Bound():
            return given
        case Flow():
            raise InvalidInput(
                f"flow {given.name!r} is not bound to its arguments; write {given.name}.bind(…)."
            )
        case Step():
            raise InvalidInput(f"{given.name!r} is a step; await it in a function with @flow.")
    raise InvalidInput(f"a {type(given).__name__} is not a flow with its arguments; write FLOW.bind(…).")


class Flow(Generic[P, R]):
    """An async function whose progress survives every process. An app runs it: `app.call(build.bind(…))`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        version: str = "",
        max_running: int | None = None,
        local: Mapping[str, Any] | None = None,
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(
                f"{getattr(function, '__qualname__', function)} is not async; write the flow as `async def`, "
                "and put blocking code into a step, which may be a plain function."
            )
        self.function = function
        self.name = checked_name(name or function.__name__, "a flow")
        if version != str(version) or (version and not re.fullmatch(r"[\w.-]{1,40}", version)):
            raise InvalidInput(
                f"version={version!r} of flow {self.name!r}: write text of letters, digits, '.', '_' "
                "and '-', such as version=\"2\"."
            )
        self.version, self.max_running = version, max_running
        self.declared = Declared(function, local or {})
        if self.declared.names is None:
            raise InvalidInput(f"flow {self.name!r} takes *args or **kwargs; name its parameters.")
        check_returns(function, f"flow {self.name!r}")
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__doc__, self.__module__, self.__wrapped__ = function.__doc__, function.__module__, function
        _known.setdefault(self.kind, []).append(self)

    def __repr__(self) -> str:
        return f"<flow {self.name}>"

    @property
    def kind(self) -> str:
        """The name of its handler, by which workers find it."""
        return flow_kind(self.name, self.version)

    @property
    def source(self) -> str:
        """Its pipeline."""
        return flow_source(self.name, self.version, max_running=self.max_running)

    @property
    def path(self) -> str | None:
        """The file it is in and its name there, by which a resume finds it; None if it is in no file."""
        file = self.function.__code__.co_filename
        if not file.endswith(".py") or not os.path.isfile(file):
            return None
        return f"{os.path.abspath(file)}:{self.name}"

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """The flow with these arguments, for `app.call`, `run` and `submit`."""
        inputs = self.inputs(self.declared.given(args, kwargs))
        self.arguments(inputs)  # refused here, and not by a run that fails
        return Bound(self, inputs)

    def bind_values(self, values: Mapping[str, Any], *, is_text: bool = False) -> Bound[R]:
        """The flow with values that came as JSON, or as text from a command line."""
        return Bound(self, self.inputs(self.arguments(values, is_text=is_text, is_strict=True)))

    def inputs(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are stored."""
        return {
            name: as_stored(value, f"{name!r} of flow {self.name!r}") for name, value in arguments.items()
        }

    def arguments(
        self, values: Mapping[str, Any], *, is_text: bool = False, is_strict: bool = False
    ) -> dict[str, Any]:
        """The values that the flow takes of these, as its declared types. `is_strict`: it takes them all."""
        what = f"flow {self.name!r}"
        return self.declared.arguments(what, values, is_text=is_text, is_strict=is_strict)

    def returned(self, value: Any) -> R:
        """What a run of the flow has as its result, as the declared type."""
        try:
            return as_declared(value, self.declared.returns)  # type: ignore[no-any-return]
        except ValueError as error:
            raise self._unfit(error) from None

    def check_returned(self, value: Any) -> None:
        """Refuse a result that is not of the declared type, unless nothing can be read as that type."""
        try:
            as_declared(value, self.declared.returns)
        except UnreadableType:
            return
        except ValueError as error:
            raise self._unfit(error) from None

    def _unfit(self, error: ValueError) -> InvalidInput:
        kind = getattr(self.declared.returns, "__name__", str(self.declared.returns))
        return InvalidInput(
            f"the result of flow {self.name!r} does not match {kind}: {str(error).rstrip('.')}. Correct the "
            f"flow or its annotation, and resume the run; the results of its steps are kept."
        )

    def begun(self, arguments: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """The function, called."""
        args = [
            arguments[name]
            for name, one in self.declared.signature.parameters.items()
            if one.kind is Parameters.POSITIONAL_ONLY and name in arguments
        ]
        named = self.declared.signature.parameters
        kwargs = {
            name: value
            for name, value in arguments.items()
            if named[name].kind is not Parameters.POSITIONAL_ONLY
        }
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R]:
        scope = here.get()
        if isinstance(scope, Scope):
            return written(self.name, scope.flow, self._inside(scope, args, kwargs))
        raise InvalidInput(
            f"flow {self.name!r} was called outside a flow and would not be recorded; use `await "
            f"app.call({self.name}.bind(…))`."
            if scope is None
            else f"flow {self.name!r} was called inside a step; call it in the flow."
        )

    async def _inside(self, scope: Scope, args: Any, kwargs: Any) -> R:
        """A part of the flow that awaits it, with keys of its own."""
        assert scope.flow is not None
        scope.flow.not_awaited[self.name] -= 1
        scope = typing.cast("Scope", here.get())
        flow = scope.flow
        assert flow is not None
        named, group = flow.enter(scope, self.name)
        inner = flow.branch(scope, named, named, group)
        try:
            return await flow.inside(inner, self.function(*args, **kwargs))  # type: ignore[no-any-return]
        finally:
            scope.last_us = max(scope.last_us, inner.last_us)


class FlowDecorator(Protocol):
    """`@flow(…)` with options."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Flow[P, R]: ...


@overload
def flow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Flow[P, R]: ...


@overload
def flow(*, name: str | None = None, version: str = "", max_running: int | None = None) -> FlowDecorator: ...


def flow(
    function: Any = None, /, *, name: str | None = None, version: str = "", max_running: int | None = None
) -> Any:
    """Make an async function a durable pipeline: `@flow`, or `@flow(name="…", version="2", max_running=8)`.

    An app has one flow for each `name` and `version`. With a new `version`, existing runs stay on workers
    that have the old one. `max_running`: how many of its runs are executed at a time.
    """
    local = _names_around(sys._getframe(1))
    make: Any = partial(Flow[Any, Any], name=name, version=version, max_running=max_running, local=local)
    return make if function is None else make(function)


_known: dict[str, list[Flow[Any, Any]]] = {}


def known_flow(kind: str) -> Flow[Any, Any] | None:
    """The flow of this process whose handler has this name; refuses two."""
    found = _known.get(kind, [])
    newest = {(one.function.__module__, one.function.__qualname__): one for one in found}
    if len(newest) > 1:
        places = " and ".join(sorted(".".join(place) for place in newest))
        raise InvalidInput(
            f"there are two flows {kind.partition(':')[2]!r}, {places}; give one another name."
        )
    return next(iter(newest.values()), None)


def checked_name(name: str, what: str) -> str:
    """A name that can be a part of a key."""
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        raise InvalidInput(
            f"{name[:50]!r} cannot be the name of {what}: use letters of ASCII, digits and '_', beginning "
            f"with a letter, at most {NAME_CHARACTERS_MAX}."
        )
    if POSITIONAL.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot be the name of {what}: such names are reserved for an agent's own calls."
        )
    return name


def _names_around(frame: Any) -> Mapping[str, Any]:
    """What is defined in the function around a definition, for its types; nothing at the top of a module."""
    return {} if frame.f_locals is frame.f_globals else frame.f_locals

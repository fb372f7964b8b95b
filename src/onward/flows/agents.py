"""An agent as a step of a flow: a model that is asked until it has a result, with tools if it gets some.

What it asks and uses are recorded calls of its own, with keys below that of the agent: `agent#2/m3.t1`. The
engine's handler of agent steps makes them, so they cost, stream, retry and stop at limits as in a graph.
After a crash they are answered by their keys. The result is recorded under the key of the agent when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, overload

import msgspec

from onward.errors import AgentFailed, FlowChanged, InvalidInput, NoProvider
from onward.flows.define import Step, checked_name
from onward.flows.running import (
    INSIDE,
    Asked,
    FlowRun,
    Parked,
    asked_with,
    here,
    scope_here,
    step_failed,
)
from onward.flows.scope import Scope
from onward.handlers.asked import ANSWER, AgentAsked, AskedTool
from onward.handlers.calls import AgentCalls, CallOptions, PastCall
from onward.model.call import CallKind
from onward.model.context import check_value
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.model.stored import as_declared, check_returns
from onward.pipeline.graph import Node

T = TypeVar("T")
Tool = Callable[..., Any] | Step[..., Any] | str
AGENT = CallKind.AGENT.value
CHANGED = "pipeline_error"
"""For which a handler of agents stops: what it asks has changed since it was asked first."""


@overload
async def agent(
    prompt: str,
    *,
    tools: Sequence[Tool] = (),
    model: str = "",
    system: str = "",
    effort: str = "",
    temperature: float | None = None,
    max_tokens: int | None = None,
    max_rounds: int | None = None,
    name: str = "agent",
) -> str: ...


@overload
async def agent(
    prompt: str,
    *,
    returns: type[T],
    tools: Sequence[Tool] = (),
    model: str = "",
    system: str = "",
    effort: str = "",
    temperature: float | None = None,
    max_tokens: int | None = None,
    max_rounds: int | None = None,
    name: str = "agent",
) -> T: ...


async def agent(
    prompt: str,
    *,
    returns: Any = str,
    tools: Sequence[Tool] = (),
    model: str = "",
    system: str = "",
    effort: str = "",
    temperature: float | None = None,
    max_tokens: int | None = None,
    max_rounds: int | None = None,
    name: str = "agent",
) -> Any:
    """Call a model: `notes = await agent("Collect facts about …", returns=Notes, tools=[search])`.

    `returns` is the type of the result: text, or a data class, msgspec struct, pydantic model, list or dict.
    A response that does not match is sent back with the error, at most twice. `tools` are functions with a
    docstring, steps, or names of tools of the app: the model may use them until it has a result. A step with
    `once=True` is not repeated after a crash in the middle; a person decides. `name` begins its key.
    Raises StepFailed if there is no result. A request that was answered is never sent again.
    """
    scope = scope_here("agent(…)")
    flow = scope.flow
    assert flow is not None
    checked_name(name, "an agent")
    check_returns(_returning(returns), f"agent {name!r}")
    given = {
        "prompt": prompt,
        "tools": [one if isinstance(one, str) else _tool_name(one) for one in tools],
        "model": model,
        "system": system,
        "effort": effort,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "max_rounds": max_rounds,
    }
    for what, text in (("prompt", prompt), ("system", system)):
        check_value(text, f"the {what} of agent {name!r}")
    if not prompt.strip():
        raise InvalidInput(f"agent {name!r} has an empty prompt; write what it has to do.")
    asked = asked_with(
        name, AGENT, {key: value for key, value in given.items() if value not in ("", None, [])}
    )
    asked = msgspec.structs.replace(asked, about=msgspec.json.encode([prompt[:100]]).decode())
    key, past = flow.begin(scope, asked)
    if past is not None and flow.is_answer(scope, past):
        return await flow.replayed(scope, past, returns)
    options = CallOptions(type=AGENT, name=name, inputs=asked.inputs, about=asked.about)
    work = flow.plays(returns, (prompt,), name, key)
    if work is None:
        node = _node(name, given, [one for one in tools if isinstance(one, str)])
        wanted = AgentAsked(
            prompt,
            system,
            [_asked_tool(one) for one in tools if not isinstance(one, str)],
            returns,
            partial(as_declared, declared=returns),
        )
        patches = past.patches if past is not None else scope.patches
        work = await _worked(flow, scope, key, _Call(asked, past, patches), node, wanted)
    answered = await flow.live(scope, key, work, options, past)
    if answered.error:
        raise step_failed(key, answered.error) from answered.cause
    return flow.fitting(answered.value, returns, key, 0)


class _Call(msgspec.Struct, frozen=True):
    asked: Asked
    past: PastCall | None
    patches: tuple[str, ...]


async def _worked(
    flow: FlowRun, scope: Scope, key: str, call: _Call, node: Node, wanted: AgentAsked
) -> Callable[[], Awaitable[Any]]:
    """Let the agent work to its end; what comes of it is recorded then."""
    handler = flow.step.agent
    if handler is None:
        raise flow.stop(NoProvider(key, is_call=True))
    hooks = _Hooks(flow)
    recorder = flow.recorder.of_agent(
        AgentCalls(key, call.asked.inputs, call.patches, hooks.under_way, hooks.asking, hooks.parked)
    )
    context = flow.step.for_agent(node, wanted, recorder)
    token = here.set(INSIDE)
    try:
        result = await handler.run(context)
    except asyncio.CancelledError:
        raise flow.cancelled(key) from None
    except (KeyboardInterrupt, GeneratorExit):  # of the process, or of the flow itself
        raise
    except BaseException as error:  # the attempt, the store or what is asked is in trouble, not the model
        raise flow.stop(error) from None
    finally:
        here.reset(token)
    if result.stop == CHANGED:
        raise flow.stop(
            FlowChanged(
                f"the request of {key!r} has changed since it was first sent: its tools, or "
                f"the type of its result. Undo the change, or fork before it."
            )
        )
    return partial(_ended, result, wanted)


async def _ended(result: Result, wanted: AgentAsked) -> Any:
    """The answer of an agent that has ended, as it is stored; AgentFailed if it has none."""
    if result.status in (StepStatus.FAIL, StepStatus.RETRY):
        raise AgentFailed(result.failure_reason or "it failed", keeps_answers=result.keeps_calls)
    if ANSWER in result.context_updates:
        return result.context_updates[ANSWER]
    if wanted.returns is str:
        return result.response or str(result.context_updates.get("last_response", ""))
    try:
        value = msgspec.json.decode(result.response or "")
        wanted.read(value)
    except (msgspec.DecodeError, ValueError) as error:
        raise AgentFailed(f"the answer cannot be used: {error}", keeps_answers=False) from None
    return value


class _Hooks:
    """What the flow does around the calls of an agent. It waits when all waits that asks a person."""

    def __init__(self, flow: FlowRun) -> None:
        self._flow = flow
        self._asking = self._waiting = 0
        self._is_parked = False

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """A call is made inside; an attempt that ends makes none."""
        if self._flow.ended is not None or self._flow.is_cancelled:
            raise asyncio.CancelledError
        with self._flow.under_way():
            yield

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A person is asked inside."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            self._settle()

    @contextmanager
    def parked(self, key: str, is_inside: bool) -> Iterator[None]:
        """A person has not answered yet, who was asked inside a call or between two."""
        self._flow.waits[key] = Parked(f"for an answer ({key})", is_asked=True)
        self._waiting += 1
        self._settle()
        try:
            with self._flow.only_waiting() if is_inside else nullcontext():
                yield
        finally:
            del self._flow.waits[key]
            self._waiting -= 1
            self._settle()

    def _settle(self) -> None:
        waits = 0 < self._asking == self._waiting
        if waits is not self._is_parked:
            self._is_parked = waits
            self._flow.working += -1 if waits else 1
        self._flow.park_if_all_wait()


def _node(name: str, given: dict[str, Any], allowed: Sequence[str]) -> Node:
    """The node that a handler of agent steps reads."""
    attrs = {
        "prompt": given["prompt"],
        "allowed_tools": ",".join(allowed),
        "llm_model": given["model"],
        "reasoning_effort": given["effort"],
        **{key: given[key] for key in ("temperature", "max_tokens", "max_rounds")},
    }
    told = {key: value for key, value in attrs.items() if value not in ("", None) or key == "allowed_tools"}
    return Node(name, MappingProxyType(told))


def _asked_tool(tool: Callable[..., Any] | Step[..., Any]) -> AskedTool:
    """A function as a tool; a step is its function, which may or may not be used again."""
    if not isinstance(tool, Step):
        return AskedTool(tool)
    return AskedTool(tool.function, tool.name, tool.options.repeatable, tool.options.time_limit_s)


def _tool_name(tool: Callable[..., Any] | Step[..., Any]) -> str:
    return tool.name if isinstance(tool, Step) else str(getattr(tool, "__name__", type(tool).__name__))


def _returning(returns: Any) -> Callable[..., Any]:
    """A function that declares this result, to be checked as those of steps are."""

    def returning() -> Any: ...

    returning.__annotations__["return"] = returns
    return returning

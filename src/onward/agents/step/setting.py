"""What stays the same in every request of an agent's step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from onward.agents.model.port import Model
from onward.agents.model.request import Effort, Message, ModelRequest, SchemaFormat, Tool, ToolChoice
from onward.agents.step.contract import instructions
from onward.agents.step.structured import instruction, schema_of
from onward.agents.tools.toolbox import is_allowed
from onward.errors import InvalidInput
from onward.handlers.port import StepContext
from onward.pipeline.graph import Node

SCHEMA_NAME = "answer"
MUST_USE = "must_use_tools"
ROUNDS_MAX = 1_000
SYSTEM = "You work on one step of a larger plan. Do what the step asks, and nothing else."


class AllModels(Model, Protocol):
    """Every model behind one port."""

    def full_name(self, model: str = "", *, provider: str = "") -> str:
        """`provider:model` for what a node says; InvalidInput if there is none."""
        ...

    def takes_prefix(self, model: str) -> bool:
        """Whether an answer of this model that broke off can be continued where it ended."""
        ...


class Setting(msgspec.Struct, frozen=True):
    """The model of a step, and how it is asked. `definition` is the hash of what the step is.

    `continues`: an answer that broke off is continued where it ended. `output_max` is the ceiling of all
    answers together, in tokens. `must_use_tools`: the first answer has to use one. `required_tools` are those
    of which one has to be used before the result.
    """

    model: str
    system: str
    definition: str
    effort: Effort | None
    max_tokens: int | None
    temperature: float | None
    rounds_max: int
    continues: bool = False
    tools: tuple[Tool, ...] = ()
    schema: dict[str, Any] | None = None
    output_max: int | None = None
    must_use_tools: bool = False
    required_tools: tuple[str, ...] = ()
    is_owing: bool = False
    """Whether an answer has to use a tool, whichever request it is."""

    def owing(self) -> Setting:
        """The setting of a request whose answer has to use one of the required tools: it has no others."""
        tools = tuple(tool for tool in self.tools if tool.name in self.required_tools)
        return replace(self, tools=tools, is_owing=True)

    def request(self, messages: tuple[Message, ...], number: int, room: int | None = None) -> ModelRequest:
        """Request `number` of the step, with this conversation, for an answer of at most `room` tokens."""
        ceilings = [most for most in (self.max_tokens, room) if most is not None]
        return ModelRequest(
            model=self.model,
            messages=messages,
            system=self.system,
            max_tokens=min(ceilings, default=None),
            temperature=self.temperature,
            effort=self.effort,
            tools=self.tools,
            tool_choice=self._choice(number) if self.tools else None,
            format=None if self.schema is None else SchemaFormat(SCHEMA_NAME, self.schema),
        )

    def _choice(self, number: int) -> ToolChoice | None:
        """The last request asks for a result: a use of a tool could not be followed by one."""
        if number >= self.rounds_max > 1:
            return ToolChoice.NONE
        return ToolChoice.REQUIRED if self.is_owing or (self.must_use_tools and number == 1) else None


def setting_of(
    models: AllModels, step: StepContext, known_model: str, tools: tuple[Tool, ...] = ()
) -> Setting:
    """The setting of a step; one that was asked before keeps the model that it was asked with."""
    node = step.node
    name = known_model or models.full_name(node.llm_model, provider=node.llm_provider)
    schema = schema_of(node)
    told = instructions(step.graph.outgoing(node.id)) if schema is None else instruction(schema)
    system = f"{SYSTEM}\n\n{told}"
    effort = _effort(node)
    max_tokens, temperature = node.count("max_tokens"), _temperature(node)
    identity = f"{node.instruction}\0{system}\0{effort}\0{max_tokens}\0{temperature}"
    if tools:  # how a tool is described may be improved; what it takes may not change on the way
        identity += f"\0{[(tool.name, tool.parameters) for tool in tools]}"
    return Setting(
        model=name,
        system=system,
        definition=blake3(identity.encode()).hexdigest(),
        effort=effort,
        max_tokens=max_tokens,
        temperature=temperature,
        rounds_max=node.rounds_max,
        continues=continues(node) and models.takes_prefix(name),
        tools=tools,
        schema=schema,
        must_use_tools=bool(required_tools(node)) or node.boolean(MUST_USE),
        required_tools=required_tools(node),
        output_max=node.count("max_output_tokens"),
    )


def continues(node: Node) -> bool:
    """Whether a node says that an answer that broke off is continued."""
    return node.text("on_partial") == "continue"


def check_partial(models: AllModels, node: Node, model: str) -> None:
    """Refuse a node whose answers are to be continued, if its provider does not say that it can."""
    if continues(node) and not models.takes_prefix(model):
        provider = model.partition(":")[0]
        raise InvalidInput(
            f"node {node.id!r} has on_partial=continue, but the provider {provider!r} is not known to "
            f"continue an answer; set prefill = true in [providers.{provider}] if its server does, "
            "or leave on_partial out."
        )


def required_tools(node: Node) -> tuple[str, ...]:
    """The tools that `must_use_tools` names; none if it is true or false."""
    names = tuple(name for one in node.text(MUST_USE).split(",") if (name := one.strip()))
    return () if names in (("true",), ("false",)) else names


def check_required(node: Node, allowed: Sequence[str]) -> None:
    """Refuse a node that must use a tool which it does not allow."""
    for name in required_tools(node):
        if not is_allowed(name, allowed):
            raise InvalidInput(
                f"{MUST_USE} of node {node.id!r} is {node.text(MUST_USE)!r}, and it allows no tool {name!r}; "
                "write true, false, or names of tools that it allows."
            )


def check_setting(node: Node) -> None:
    """Refuse a node with a number or a word that no request can have, before a run begins."""
    if node.rounds_max > ROUNDS_MAX:
        raise InvalidInput(f"max_rounds of node {node.id!r} is {node.rounds_max}; use at most {ROUNDS_MAX}.")
    for name in ("max_tokens", "max_output_tokens"):
        node.count(name)
    _effort(node)
    _temperature(node)


def _effort(node: Node) -> Effort | None:
    written = node.reasoning_effort
    if "reasoning_effort" not in node.attrs:
        return None
    if written not in list(Effort):
        words = ", ".join(Effort)
        raise InvalidInput(f"reasoning_effort of node {node.id!r} is {written!r}; use one of {words}.")
    return Effort(written)


def _temperature(node: Node) -> float | None:
    written = node.text("temperature")
    if not written:
        return None
    try:
        temperature = float(written)
    except ValueError:
        temperature = math.nan
    if not 0 <= temperature < math.inf:
        raise InvalidInput(
            f"temperature of node {node.id!r} is {written!r}; write a number that is not negative."
        )
    return temperature

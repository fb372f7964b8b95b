"""What an agent in a flow is told, and how its answer is read: as the text it is, or as the type it declares.

A type becomes a JSON Schema in one piece. What providers hold an answer to is an object, so any other type is
the `value` of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec
from blake3 import blake3

from onward.agents.model import Tool
from onward.agents.step.contract import (
    SYSTEM,
    AllModels,
    StepSetup,
    UnreadableAnswer,
    effort_of,
    parsed,
    schema_instruction,
    temperature_of,
)
from onward.agents.tools.functions import asked_tool, inlined, inlined_of
from onward.agents.tools.schema import problems
from onward.agents.tools.toolbox import OfferedTool, Toolbox
from onward.errors import InvalidInput
from onward.handlers.asked import ANSWER, AgentAsked
from onward.handlers.port import StepContext
from onward.model.result import Result

REPAIRS_MAX = 2
"""How often an agent is asked again whose answer is not of its type."""
VALUE = "value"


def setup_asked(
    models: AllModels, step: StepContext, asked: AgentAsked, known_model: str, tools: tuple[Tool, ...]
) -> StepSetup:
    """How an agent in a flow is asked; one that was asked before keeps the model that it was asked with."""
    node, schema = step.node, answer_schema(asked.returns)
    told = [asked.system or SYSTEM, *([] if schema is None else [schema_instruction(schema)])]
    effort, max_tokens, temperature = effort_of(node), node.count("max_tokens"), temperature_of(node)
    described = [(tool.name, tool.parameters) for tool in tools]
    identity = msgspec.json.encode((asked.prompt, told, effort, max_tokens, temperature, described))
    return StepSetup(
        model=known_model or models.full_name(node.llm_model, provider=node.llm_provider),
        system="\n".join(told),
        definition=blake3(identity).hexdigest(),
        effort=effort,
        max_tokens=max_tokens,
        temperature=temperature,
        rounds_max=node.rounds_max,
        tools=tools,
        schema=schema,
    )


def with_functions(
    offered: dict[str, OfferedTool], step: StepContext, toolbox: Toolbox
) -> dict[str, OfferedTool]:
    """The tools of a step, with the functions that an agent in a flow was given."""
    for asked in () if step.asked is None else step.asked.tools:
        tool = asked_tool(asked, f"agent {step.node.id!r}")
        name = tool.described.name
        if name in offered and offered[name].tool is not tool:
            raise InvalidInput(f"two tools are called {name!r}; give one of them another name.")
        offered[name] = OfferedTool(tool, toolbox.rules_of(tool))
    return offered


def read_asked(text: str, asked: AgentAsked) -> Result:
    """The result with the answer as it is stored; Unreadable if it is not of the declared type."""
    if asked.returns is str:
        return Result(context_updates={ANSWER: text}, response=text)
    schema = answer_schema(asked.returns)
    assert schema is not None
    value = parsed(text)
    if wrong := problems(schema, value):
        raise UnreadableAnswer("; ".join(wrong))
    if is_wrapped(asked.returns):
        value = value[VALUE]
    try:
        asked.read(value)
    except ValueError as error:
        raise UnreadableAnswer(str(error)) from None
    return Result(context_updates={ANSWER: value}, response=text)


def is_wrapped(returns: Any) -> bool:
    """Whether the answer is an object that has the value of this type."""
    return _schema(returns).get("type") != "object"


def answer_schema(returns: Any) -> dict[str, Any] | None:
    """The schema of answers of this type; None for text. InvalidInput: no model can be told of the type."""
    if returns is str:
        return None
    schema = _schema(returns)
    if schema.get("type") == "object":
        return schema
    parts = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    wrapped = {"type": "object", "properties": {VALUE: schema}, "required": [VALUE]}
    return {**wrapped, "additionalProperties": False, **parts}


def _schema(returns: Any) -> dict[str, Any]:
    try:
        return _of_pydantic(returns) or inlined(returns, hook=_hook)
    except (TypeError, ValueError, NotImplementedError) as error:
        name = getattr(returns, "__name__", str(returns))
        why = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise InvalidInput(
            f"no schema can be made for returns={name} ({why}); use a dataclass, a msgspec.Struct, a "
            "pydantic model, a TypedDict, or lists and dicts of them."
        ) from None


def _of_pydantic(kind: Any) -> dict[str, Any] | None:
    """The schema of a pydantic model, in one piece."""
    described = getattr(kind, "model_json_schema", None)
    if not isinstance(kind, type) or described is None:
        return None
    schema: Mapping[str, Any] = described()
    root = {name: part for name, part in schema.items() if name != "$defs"}
    return inlined_of(root, dict(schema.get("$defs", {})))


def _hook(kind: type) -> dict[str, Any]:
    """What msgspec does not know inside of other types: models of pydantic, and paths."""
    found = _of_pydantic(kind)
    if found is not None:
        return found
    if issubclass(kind, PurePath):
        return {"type": "string"}
    raise TypeError(f"{kind.__name__} is not a data type")

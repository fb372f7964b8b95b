"""The port to tools: what the model is told about one, how it may be used, and what it answers.

At the end, what several built-in tools need: the words of their schemas, and where the tools of a step
work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from onward.agents.model import Tool
from onward.errors import CallTimedOut
from onward.handlers.port import StepContext
from onward.pipeline.graph import Node

TIME_LIMIT_S = 120.0
OUTPUT_CHARACTERS = 30_000


class ToolRules(msgspec.Struct, frozen=True):
    """How a tool may be used. Settings replace what the tool itself says."""

    repeatable: bool = True
    """False: a use whose process died in the middle is in doubt, and a person decides."""
    approval: bool = False
    """Whether a person must allow each use, with its exact arguments."""
    is_concurrent: bool = True
    """Whether it may be used at the same time as others that an answer asks for."""
    time_limit_s: float = TIME_LIMIT_S
    """After this long a use is ended, with everything that it started."""
    output_characters: int = OUTPUT_CHARACTERS
    """How much of its answer the model sees; the whole answer is kept as an artifact."""


class ToolUse(msgspec.Struct, frozen=True):
    """One use of a tool. `arguments` fit its schema; `key` is the same if this use is repeated."""

    step: StepContext
    arguments: dict[str, Any]
    key: str
    rules: ToolRules


class ToolAnswer(msgspec.Struct, frozen=True):
    """What came of a use: text for the model, whole; the loop shortens it. An error is an answer, too."""

    text: str
    is_error: bool = False


class ToolRefused(Exception):
    """A tool does not do what it was asked; the text says why, for the model to do better."""


class CutOff(CallTimedOut):
    """The other side broke off in the middle of a use: nobody knows whether it did what it was asked."""

    def __init__(self, key: str, limit_s: float, why: str) -> None:
        super().__init__(key, limit_s)
        self.args = (f"it is unknown whether call {key!r} was done: {why.rstrip('.')}.",)


class AgentTool(Protocol):
    """Does something for an agent."""

    @property
    def described(self) -> Tool:
        """What the model is told: its name, what it is for, and the schema of its arguments."""
        ...

    @property
    def rules(self) -> ToolRules:
        """How it may be used, unless settings say otherwise."""
        ...

    async def run(self, use: ToolUse) -> ToolAnswer:
        """Use it once, within `use.rules.time_limit_s`. It ends what it started when it is cancelled.

        ToolRefused, and any other exception: the model is told, as of an answer that is an error.
        CallTimedOut, or CutOff, from a tool that must not be repeated: the use is in doubt. A CallTimedOut
        that is still running: the step is in doubt, whatever the tool may.
        """
        ...


class ToolSource(Protocol):
    """Offers tools to steps."""

    def check_name(self, name: str, node: Node) -> bool:
        """Whether it offers a tool of this name, as far as that is known before a run begins."""
        ...

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[AgentTool]:
        """Those of its tools that a node allows with these names."""
        ...


class ListedTools(msgspec.Struct, frozen=True):
    """The tools of a source; `failed` says in a sentence each which could not be asked for."""

    tools: Sequence[AgentTool]
    failed: Sequence[str] = ()


@runtime_checkable
class ListsTools(Protocol):
    """A source that can tell its tools without a step."""

    @property
    def origin(self) -> str:
        """Where its tools come from, in a word for people."""
        ...

    async def listed(self) -> ListedTools:
        """All its tools, asked for where they are."""
        ...


def arguments_schema(
    required: Mapping[str, Any], optional: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def text_schema(description: str) -> dict[str, Any]:
    """The schema of a text."""
    return {"type": "string", "description": description}


def workspace_of(step: StepContext) -> str:
    """The step's work tree; without one, the run's directory, or that of this process."""
    return step.workspace or step.workdir or os.getcwd()

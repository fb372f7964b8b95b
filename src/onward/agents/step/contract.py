"""What an agent is told in every request of its step, and how its answer is read.

`StepSetup` is what stays the same in every request: the model, the system prompt, the tools, the ceilings.

The answer is free text. It may end with a few lines that even a small model can write:

    OUTCOME: success | partial_success | retry | fail
    NEXT: the label of an edge, or the name of the next node
    SET key = value
    NOTE: one line for people

or with one fenced block of JSON with the same facts. A line that is not one of these is part of the text.

A node may give a schema instead: then the answer is JSON, checked against it, with values for later steps.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from onward.agents.model import Effort, Message, Model, ModelRequest, SchemaFormat, Tool, ToolChoice
from onward.agents.tools.schema import check_schema, problems
from onward.agents.tools.toolbox import is_allowed
from onward.errors import InvalidInput
from onward.handlers.port import RESPONSE_CHARACTERS, StepContext
from onward.model.context import check_updates, check_value
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.pipeline.graph import Edge, Node

SCHEMA_NAME = "answer"
MUST_USE = "must_use_tools"
ROUNDS_MAX = 1_000
SYSTEM = "Do this one step of a larger plan, and nothing else."


class AllModels(Model, Protocol):
    """Every model behind one port."""

    def full_name(self, model: str = "", *, provider: str = "") -> str:
        """`provider:model` for what a node says; InvalidInput if there is none."""
        ...

    def takes_prefix(self, model: str) -> bool:
        """Whether an answer of this model that broke off can be continued where it ended."""
        ...


class StepSetup(msgspec.Struct, frozen=True):
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

    def owing(self) -> StepSetup:
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


def setup_of(
    models: AllModels, step: StepContext, known_model: str, tools: tuple[Tool, ...] = ()
) -> StepSetup:
    """The setting of a step; one that was asked before keeps the model that it was asked with."""
    node = step.node
    name = known_model or models.full_name(node.llm_model, provider=node.llm_provider)
    schema = schema_of(node)
    edges = step.graph.outgoing(node.id)
    has_later = any(edge.target != step.graph.exit_id for edge in edges)
    told = instructions(edges, has_later=has_later) if schema is None else schema_instruction(schema)
    effort = effort_of(node)
    max_tokens, temperature = node.count("max_tokens"), temperature_of(node)
    known_as = first_words(edges) if schema is None else told
    identity = f"{node.instruction}\0{FIRST_SYSTEM}\n\n{known_as}\0{effort}\0{max_tokens}\0{temperature}"
    if tools:  # how a tool is described may be improved; what it takes may not change on the way
        identity += f"\0{[(tool.name, tool.parameters) for tool in tools]}"
    return StepSetup(
        model=name,
        system=f"{SYSTEM}\n{told}",
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
            f"node {node.id!r} has on_partial=continue, but the provider {provider!r} may not support "
            f"continuing a response; set prefill = true in [providers.{provider}] if its server supports it, "
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


def check_setup(node: Node) -> None:
    """Refuse a node with a number or a word that no request can have, before a run begins."""
    if node.rounds_max > ROUNDS_MAX:
        raise InvalidInput(f"max_rounds of node {node.id!r} is {node.rounds_max}; use at most {ROUNDS_MAX}.")
    for name in ("max_tokens", "max_output_tokens"):
        node.count(name)
    effort_of(node)
    temperature_of(node)


def effort_of(node: Node) -> Effort | None:
    """How hard the model is to think; None if the node does not say."""
    written = node.reasoning_effort
    if "reasoning_effort" not in node.attrs:
        return None
    if written not in list(Effort):
        words = ", ".join(Effort)
        raise InvalidInput(f"reasoning_effort of node {node.id!r} is {written!r}; use one of {words}.")
    return Effort(written)


def temperature_of(node: Node) -> float | None:
    """The temperature of its requests; None if the node does not say."""
    written = node.text("temperature")
    if not written:
        return None
    try:
        temperature = float(written)
    except ValueError:
        temperature = math.nan
    if not 0 <= temperature < math.inf:
        raise InvalidInput(f"temperature of node {node.id!r} is {written!r}; write 0 or more.")
    return temperature


LINES_MAX = 40
"""How many lines at the end of an answer may be facts."""
_LINE = re.compile(r"\s*(?:[-*]\s*)?\**(OUTCOME|NEXT|NOTE|SET)\**\s*:?\**\s*(.*?)\**\s*$", re.IGNORECASE)
_SET = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*)")
_FENCE = "```"
_OPENING = re.compile(r"```(?:json|status|onward)?[ \t\r]*\n")
OUTCOMES = {status.value: status for status in StepStatus if status is not StepStatus.SKIPPED}
_KNOWN = {
    "outcome",
    "status",
    "preferred_label",
    "preferred_next_label",
    "suggested_next_ids",
    "context_updates",
}
_KNOWN |= {"notes", "failure_reason", "next"}


class AnswerFacts(msgspec.Struct):
    """What an answer says about its step beside the text."""

    status: StepStatus = StepStatus.SUCCESS
    label: str = ""
    next_ids: tuple[str, ...] = ()
    updates: dict[str, Any] = msgspec.field(default_factory=dict)
    notes: str = ""
    reason: str = ""


class UnreadableAnswer(ValueError):
    """An answer's facts cannot be used; the text says what is wrong, for the model to correct."""


def instructions(edges: tuple[Edge, ...], *, has_later: bool = True) -> str:
    """What the agent is told: only what its node can use."""
    lines = ["If you cannot do it, end with the lines `OUTCOME: fail` and `NOTE: the reason`."]
    labels = [edge.label for edge in edges if edge.label]
    if len(labels) > 1:
        lines.append("End with a line `NEXT:` and one of these words: " + ", ".join(labels) + ".")
    if has_later:
        lines.append("A last line `SET name = value` hands a value on.")
    return "\n".join(lines)


FIRST_SYSTEM = "You work on one step of a larger plan. Do what the step asks, and nothing else."


def first_words(edges: tuple[Edge, ...]) -> str:
    """What agents were told at first. The hash of a step's definition has these words, so that a step that
    was begun with other words continues: what is sent may be improved."""
    labels = [edge.label for edge in edges if edge.label]
    choice = f"End your answer with a line `NEXT:` and one of these words: {', '.join(labels)}."
    lines = [
        "Answer the request. If you could not do what was asked, end your answer with a line "
        "`OUTCOME: fail` and a line `NOTE:` with the reason.",
        *([choice] if len(labels) > 1 else []),
        "To hand a value to later steps, add a line `SET name = value`.",
    ]
    return "\n".join(lines)


def read_answer(text: str, node_id: str) -> Result:
    """The result that an answer means; Unreadable if its facts contradict the contract."""
    body, facts = _split(text)
    _check_updates(facts.updates)
    updates = {"last_stage": node_id, "last_response": body[:RESPONSE_CHARACTERS], **facts.updates}
    is_failure = facts.status in (StepStatus.FAIL, StepStatus.RETRY)
    return Result(
        status=facts.status,
        context_updates=updates,
        preferred_label=facts.label,
        suggested_next_ids=facts.next_ids,
        notes=facts.notes,
        failure_reason=(facts.reason or facts.notes or body[:RESPONSE_CHARACTERS]) if is_failure else "",
        response=text,
        is_decided=facts.status is not StepStatus.SUCCESS,
    )


def _check_updates(updates: dict[str, Any]) -> None:
    """Refuse values that no step can hand on, so that the model is told; its step would fail of them."""
    try:
        check_updates(updates)
    except InvalidInput as error:
        raise UnreadableAnswer(str(error).rstrip(".")) from None


def _split(text: str) -> tuple[str, AnswerFacts]:
    block = _block(text)
    if block is not None:
        return text[: block[0]].rstrip(), _from_json(block[1])
    lines = text.rstrip().splitlines()
    facts, at = AnswerFacts(), len(lines)
    while at > max(0, len(lines) - LINES_MAX) and (not lines[at - 1].strip() or _LINE.match(lines[at - 1])):
        at -= 1
    for line in lines[at:]:
        found = _LINE.match(line)
        if found is not None:
            _take(facts, found.group(1).upper(), found.group(2).strip())
    return "\n".join(lines[:at]).rstrip(), facts


def _block(text: str) -> tuple[int, str] | None:
    """The fenced object at the end of an answer, and where its fence begins; None if it ends otherwise."""
    ended = text.rstrip()
    if not ended.endswith(_FENCE):
        return None
    inner = ended.removesuffix(_FENCE)
    openings = [*_OPENING.finditer(inner)]
    if not openings:
        return None
    last = openings[-1]  # what an earlier block holds is a part of the text
    content = inner[last.end() :].strip()
    return (last.start(), content) if content[:1] == "{" and content[-1:] == "}" else None


def _take(facts: AnswerFacts, name: str, value: str) -> None:
    match name:
        case "OUTCOME":
            facts.status = _outcome(value)
        case "NEXT":
            facts.label, facts.next_ids = value, (value,)
        case "NOTE":
            facts.notes = f"{facts.notes}\n{value}".strip()
        case _:
            found = _SET.fullmatch(value)
            if found is None:
                raise UnreadableAnswer(f"`SET {value}` is not `SET name = value`")
            facts.updates[found.group(1)] = _value(found.group(2))


def _outcome(value: object) -> StepStatus:
    word = str(value).strip().lower().replace(" ", "_")
    if word not in OUTCOMES:
        raise UnreadableAnswer(f"the outcome {str(value)[:40]!r} is none of {', '.join(OUTCOMES)}")
    return OUTCOMES[word]


def _value(text: str) -> Any:
    """JSON if it is some, else the text itself."""
    try:
        value = json.loads(text)
        check_value(value, "a value")
    except (ValueError, InvalidInput, RecursionError):
        return text
    return value


def _from_json(content: str) -> AnswerFacts:
    try:
        said = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswer(f"the JSON at its end does not parse: {error}") from None
    return facts_of(said) if isinstance(said, dict) else AnswerFacts()


def facts_of(said: dict[str, Any]) -> AnswerFacts:
    """The facts in an object; none if it is a part of the answer that happens to be JSON."""
    if not said.keys() & _KNOWN:
        return AnswerFacts()
    updates = said.get("context_updates") or {}
    if not isinstance(updates, dict):
        raise UnreadableAnswer("context_updates in the JSON at its end is not an object")
    next_ids = said.get("suggested_next_ids") or ([said["next"]] if said.get("next") else [])
    if not isinstance(next_ids, list):
        raise UnreadableAnswer("suggested_next_ids in the JSON at its end is not a list")
    label = said.get("preferred_label") or said.get("preferred_next_label") or said.get("next") or ""
    return AnswerFacts(
        status=_outcome(said.get("outcome") or said.get("status") or "success"),
        label=str(label),
        next_ids=tuple(str(one) for one in next_ids),
        updates=updates,
        notes=str(said.get("notes") or ""),
        reason=str(said.get("failure_reason") or ""),
    )


SCHEMA = "output_schema"
ONLY_JSON = "Answer with one JSON value that fits this JSON Schema, and nothing else:"
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


def schema_of(node: Node) -> dict[str, Any] | None:
    """The schema of a node's answers; None if any text will do. InvalidInput: what it has is no schema."""
    written = node.text(SCHEMA)
    if not written:
        return None
    where = f"{SCHEMA} of node {node.id!r}"
    try:
        schema = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where} is not JSON: {error}; write a JSON Schema.") from None
    check_schema(schema, where)
    assert isinstance(schema, dict)
    return schema


def schema_instruction(schema: dict[str, Any]) -> str:
    """What the agent is told, also where the provider holds it to the schema."""
    return f"{ONLY_JSON}\n{json.dumps(schema, ensure_ascii=False)}"


def read_structured(text: str, node_id: str, schema: dict[str, Any]) -> Result:
    """The result that a structured answer means; Unreadable if it does not fit.

    Later steps find every field of the object under `NODE.field`, and all of it as JSON under `NODE.answer`.
    Fields that decide about the step (`outcome`, `preferred_label`, `context_updates`, …) do so.
    """
    value = parsed(text)
    if wrong := problems(schema, value):
        raise UnreadableAnswer("; ".join(wrong))
    fields = value if isinstance(value, dict) else {}
    facts = facts_of(fields)
    _check_updates(facts.updates)
    is_failure = facts.status in (StepStatus.FAIL, StepStatus.RETRY)
    updates = {
        "last_stage": node_id,
        "last_response": text.strip()[:RESPONSE_CHARACTERS],
        f"{node_id}.answer": value,
        **{f"{node_id}.{name}": one for name, one in fields.items()},
        **facts.updates,
    }
    return Result(
        status=facts.status,
        context_updates=updates,
        preferred_label=facts.label,
        suggested_next_ids=facts.next_ids,
        notes=facts.notes,
        failure_reason=(facts.reason or facts.notes or text[:RESPONSE_CHARACTERS]) if is_failure else "",
        response=text,
        is_decided=facts.status is not StepStatus.SUCCESS,
    )


def parsed(text: str) -> Any:
    """The JSON that an answer is, alone or in a fence; Unreadable if it is none."""
    fenced = _FENCED.fullmatch(text)
    try:
        value = json.loads(fenced.group(1) if fenced else text)
        check_value(value, "the answer")
    except (ValueError, RecursionError, InvalidInput) as error:
        raise UnreadableAnswer(f"it is not JSON: {error}") from None
    return value

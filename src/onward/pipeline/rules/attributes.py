"""Rules about the attributes of one graph, node or edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from onward.errors import ConditionError, StylesheetError
from onward.pipeline import inputs
from onward.pipeline.branches import FAN_IN
from onward.pipeline.condition import Condition, parse_condition
from onward.pipeline.gate import as_question_type, as_timeout_rule
from onward.pipeline.graph import BUILT_IN_TYPES, DEFAULT_KIND, Edge, Graph, Node
from onward.pipeline.purpose import INTENTS_KEY, SCOPES_KEY, as_names, mistakes
from onward.pipeline.rules.rule import Problem, Subject, about, owner_of
from onward.pipeline.source import (
    Value,
    as_boolean,
    as_count,
    as_duration_s,
    as_integer,
    as_object,
    as_positive,
    as_positive_s,
    as_text,
    shown,
)
from onward.pipeline.stylesheet import parse_stylesheet
from onward.pipeline.vocabulary import (
    CHAT_HISTORY,
    ON_MESSAGE,
    ON_MESSAGE_RULES,
    REQUIRED,
    WHILE_RUNNING,
    WHILE_RUNNING_RULES,
    as_history,
    as_requirement,
    meant,
)

FIDELITIES = ("full", "truncate", "compact", "summary:low", "summary:medium", "summary:high")
DEFAULT_FIDELITY = "compact"
JOIN_POLICIES = ("wait_all", "first_success")
MANAGER_ACTIONS = ("observe", "steer", "wait")
EFFORTS = ("low", "medium", "high")
ON_PARTIAL = ("retry", "continue")
RETRY_POLICIES = ("none", "standard", "aggressive", "linear", "patient")
FILE_MODES = ("full", "lazy", "off")
WORKSPACE_MODES = ("worktree", "in_place")
BRANCH_WORKSPACES = ("own", "shared")

Reading = Callable[[Value], Any]


def one_of(*names: str) -> Reading:
    """Reads one of these names; a ValueError lists them."""

    def read(value: Value) -> str:
        if as_text(value) not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return as_text(value)

    return read


def as_actions(value: Value) -> tuple[str, ...]:
    """What a manager loop may do, separated by commas; a ValueError lists the actions."""
    actions = tuple(action.strip() for action in as_text(value).split(","))
    if not set(actions) <= set(MANAGER_ACTIONS):
        raise ValueError(f"some of {', '.join(MANAGER_ACTIONS)}, separated by commas")
    return actions


def as_condition(value: Value) -> Condition:
    """A condition; a ValueError says what is wrong with it."""
    try:
        return parse_condition(as_text(value))
    except ConditionError as error:
        raise ValueError(f"a condition: {error.message}") from None


GRAPH_TYPES: Mapping[str, Reading] = {
    "default_max_retries": as_count,
    "default_max_retry": as_count,
    "max_visits": as_positive,
    "max_steps": as_positive,
    "max_reroutes": as_count,
    "max_restarts": as_count,
    "max_running": as_positive,
    "retry_on_fail": as_boolean,
    "continue_on_fail": as_boolean,
    "retry_policy": one_of(*RETRY_POLICIES),
    "files": one_of(*FILE_MODES),
    "workspace_mode": one_of(*WORKSPACE_MODES),
    "tool_hooks.timeout": as_positive_s,
    ON_MESSAGE: one_of(*ON_MESSAGE_RULES),
    WHILE_RUNNING: one_of(*WHILE_RUNNING_RULES),
    INTENTS_KEY: as_names,
    SCOPES_KEY: as_names,
    inputs.INPUTS_KEY: inputs.as_input_names,
}
NODE_TYPES: Mapping[str, Reading] = {
    "max_retries": as_count,
    "max_visits": as_positive,
    "goal_gate": as_boolean,
    "timeout": as_positive_s,
    "auto_status": as_boolean,
    "allow_partial": as_boolean,
    "repeatable": as_boolean,
    "on_partial": one_of(*ON_PARTIAL),
    "continue_on_fail": as_boolean,
    "retry_policy": one_of(*RETRY_POLICIES),
    "join_policy": one_of(*JOIN_POLICIES),
    "max_parallel": as_positive,
    "manager.poll_interval": as_positive_s,
    "manager.max_cycles": as_positive,
    "manager.steer_cooldown": as_duration_s,
    "manager.stop_condition": as_condition,
    "manager.actions": as_actions,
    "stack.child_autostart": as_boolean,
    "human.type": as_question_type,
    "human.timeout": as_positive_s,
    "human.on_timeout": as_timeout_rule,
    "human.remind": as_positive_s,
    "tool_hooks.timeout": as_positive_s,
    REQUIRED: as_requirement,
    CHAT_HISTORY: as_history,
}
SHARED_NAMES: Mapping[str, tuple[str, ...]] = {"files": FILE_MODES, "workspace": BRANCH_WORKSPACES}
"""Attributes of nodes that others have under the same name: only these values are ours."""
EDGE_TYPES: Mapping[str, Reading] = {"weight": as_integer, "loop_restart": as_boolean, "data": as_object}


def attribute_type(subject: Subject) -> Iterator[Problem]:
    """Every typed attribute can be read as its type."""
    graph = subject.graph
    yield from _mistyped(graph, GRAPH_TYPES)
    yield from chain.from_iterable(_mistyped(node, NODE_TYPES) for node in graph.nodes.values())
    yield from chain.from_iterable(_mistyped(edge, EDGE_TYPES) for edge in graph.edges)


def _mistyped(owner: Graph | Node | Edge, types: Mapping[str, Reading]) -> Iterator[Problem]:
    for key, value in owner.attrs.items():
        reading = types.get(key)
        if reading is None:
            continue
        try:
            reading(value)
        except ValueError as error:
            message = f"{key} of {owner_of(owner, key)} is {shown(value)}"
            yield about(owner, message, key=key, fix=f"write {error}")


def messages_described(subject: Subject) -> Iterator[Problem]:
    """What is said about an intent or a scope is about one that is listed, and can be read."""
    graph = subject.graph
    for key, fix in mistakes(graph):
        yield about(graph, f"{key} of {owner_of(graph, key)} is {shown(graph.text(key))}", key=key, fix=fix)


def inputs_described(subject: Subject) -> Iterator[Problem]:
    """What is said about an input is about one that is listed, and can be read."""
    graph = subject.graph
    for key, fix in inputs.mistakes(graph):
        yield about(graph, f"{key} of {owner_of(graph, key)} is {shown(graph.text(key))}", key=key, fix=fix)


def value_ours(subject: Subject) -> Iterator[Problem]:
    """`files` and `workspace` of a node have a value of ours. Any other is another program's, and ignored."""
    for node in subject.graph.nodes.values():
        if node.kind not in BUILT_IN_TYPES:
            continue  # its handler may read it
        for key, ours in SHARED_NAMES.items():
            if key in node.attrs and node.text(key) not in ours:
                message = f"{key} of {owner_of(node, key)} is {shown(node.text(key))}, which is ignored"
                yield about(node, message, key=key, fix=f"Onward's own values are {', '.join(ours)}")


def condition_syntax(subject: Subject) -> Iterator[Problem]:
    """V7: every condition parses."""
    for edge in subject.graph.edges:
        try:
            _ = edge.guard
        except ConditionError as error:
            message = f"the condition of {edge.subject} does not parse: {error.message}"
            yield about(edge, message, key="condition", offset=error.offset)


def stylesheet_syntax(subject: Subject) -> Iterator[Problem]:
    """V8: the model stylesheet parses."""
    try:
        parse_stylesheet(subject.graph.text("model_stylesheet"))
    except StylesheetError as error:
        message = f"the model stylesheet does not parse: {error.message}"
        yield about(subject.graph, message, key="model_stylesheet", offset=error.offset)


def type_known(subject: Subject) -> Iterator[Problem]:
    """V9: the handler that a node names is registered."""
    for node in subject.graph.nodes.values():
        if node.type and node.type not in subject.known_types:
            near = meant(node.type, BUILT_IN_TYPES)
            known = ", ".join(sorted(subject.known_types))
            fix = f"did you mean {near}?" if near else f"registered: {known}; name its app with --app"
            message = f"node {node.id!r} needs handler {shown(node.type)}, which is not registered"
            yield about(node, message, key="type", fix=fix)


def agent_served(subject: Subject) -> Iterator[Problem]:
    """The first step that needs an agent; for processes that have no handler for agents."""
    graph = subject.graph
    for node in graph.nodes.values():
        asks = node.kind == DEFAULT_KIND or (node.kind == FAN_IN and node.prompt)
        if asks and node.id not in (graph.start_id, graph.exit_id) and not node.text("agent_program"):
            message = f"node {node.id!r} is an agent step and no model provider is set up"
            fix = (
                "set OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY or [providers.NAME], and ONWARD_MODEL,"
                " as docs/agents.md says; or run it with --simulate; or name with --app an app that has a "
                f"handler for {DEFAULT_KIND!r}"
            )
            yield about(node, message, fix=fix)
            return


def fidelity_valid(subject: Subject) -> Iterator[Problem]:
    """V10: a fidelity is one of the six modes."""
    graph = subject.graph
    yield from _unknown_fidelity(graph, "default_fidelity")
    for owner in chain[Node | Edge](graph.nodes.values(), graph.edges):
        yield from _unknown_fidelity(owner, "fidelity")


def _unknown_fidelity(owner: Graph | Node | Edge, key: str) -> Iterator[Problem]:
    fidelity = owner.text(key)
    if fidelity and fidelity not in FIDELITIES:
        message = f"{key} of {owner_of(owner, key)} is {shown(fidelity)}"
        yield about(
            owner,
            message,
            key=key,
            fix=f"write one of {', '.join(FIDELITIES)}; until then it is treated as {DEFAULT_FIDELITY}",
        )


def thread_id_once(subject: Subject) -> Iterator[Problem]:
    """C12: if an edge and its target both have a thread, the target's wins."""
    graph = subject.graph
    for edge in graph.edges:
        node = graph.nodes.get(edge.target)
        ours, theirs = edge.text("thread_id"), node.text("thread_id") if node else ""
        if ours and theirs and ours != theirs:
            message = f"thread_id of {edge.subject} is {shown(ours)}, but node {edge.target!r} has its own"
            yield about(edge, message, key="thread_id", fix=f"the node's {shown(theirs)} applies; keep one")


def effort_known(subject: Subject) -> Iterator[Problem]:
    """Every reasoning effort is one that all providers know."""
    graph = subject.graph
    for owner in chain[Graph | Node]((graph,), graph.nodes.values()):
        if "reasoning_effort" in owner.written:
            yield from _unknown_effort(owner, owner.text("reasoning_effort"), "reasoning_effort", None)
    with suppress(StylesheetError):
        for rule in parse_stylesheet(graph.text("model_stylesheet")):
            for setting in rule.properties:
                if setting.name == "reasoning_effort":
                    yield from _unknown_effort(graph, setting.value, "model_stylesheet", setting.offset)


def _unknown_effort(owner: Graph | Node, effort: str, key: str, offset: int | None) -> Iterator[Problem]:
    if effort and effort not in EFFORTS:
        fix = f"write one of {', '.join(EFFORTS)}"
        yield about(owner, f"reasoning_effort is {shown(effort)}", key=key, offset=offset, fix=fix)


def prompt_on_llm_nodes(subject: Subject) -> Iterator[Problem]:
    """V13: an agent node has a prompt or a label of its own."""
    graph = subject.graph
    silent = {*graph.starts, *graph.exits}
    for node in graph.nodes.values():
        if node.kind == DEFAULT_KIND and node.id not in silent and not (node.prompt or node.text("label")):
            yield about(node, f"node {node.id!r} has neither a prompt nor a label", fix='add prompt="..."')

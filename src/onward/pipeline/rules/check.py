"""The checker: a table of rules, all of which report.

`RULES` are those of every pipeline. An app may give them other severities and add its own. A registered
pipeline has more: only its source is stored, so it must mean the same without its file. And as the source
is stored as it is, there is a rule about secrets that are written in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import PurePath

from msgspec.structs import replace

from onward.errors import InvalidInput
from onward.model.ids import can_be_registered
from onward.model.values import Variables
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.rules import attributes, steps, structure, words
from onward.pipeline.rules.attributes import agent_served
from onward.pipeline.rules.rule import Problem, Rule, Subject, about
from onward.pipeline.rules.structure import CHILD, MANAGER
from onward.pipeline.source import Diagnostic, Severity, by_position

__all__ = ["RULES", "Problem", "Rule", "Subject", "check"]

FINDINGS_MAX = 100
"""Findings of one rule; more would only hide those of the other rules."""

RULES: tuple[Rule, ...] = (
    Rule("start_node", Severity.ERROR, structure.start_node),
    Rule("terminal_node", Severity.ERROR, structure.terminal_node),
    Rule("reachability", Severity.ERROR, structure.reachability),
    Rule("edge_target_exists", Severity.ERROR, structure.edge_target_exists),
    Rule("start_no_incoming", Severity.ERROR, structure.start_no_incoming),
    Rule("exit_no_outgoing", Severity.ERROR, structure.exit_no_outgoing),
    Rule("condition_syntax", Severity.ERROR, attributes.condition_syntax, local=True, per_value=True),
    Rule("stylesheet_syntax", Severity.ERROR, attributes.stylesheet_syntax, local=True),
    Rule("type_known", Severity.WARNING, attributes.type_known, local=True, per_value=True),
    Rule("fidelity_valid", Severity.WARNING, attributes.fidelity_valid, local=True, per_value=True),
    Rule("dead_end", Severity.WARNING, structure.dead_end),
    Rule("retry_target_exists", Severity.WARNING, structure.retry_target_exists, per_value=True),
    Rule("goal_gate_has_retry", Severity.WARNING, structure.goal_gate_has_retry),
    Rule("prompt_on_llm_nodes", Severity.WARNING, attributes.prompt_on_llm_nodes),
    Rule("thread_id_once", Severity.WARNING, attributes.thread_id_once),
    Rule("attribute_type", Severity.ERROR, attributes.attribute_type, local=True, per_value=True),
    Rule("messages_described", Severity.ERROR, attributes.messages_described),
    Rule("inputs_described", Severity.ERROR, attributes.inputs_described),
    Rule("effort_known", Severity.WARNING, attributes.effort_known, local=True, per_value=True),
    Rule("parallel_join", Severity.WARNING, structure.parallel_join),
    Rule("fan_in_has_parallel", Severity.WARNING, structure.fan_in_has_parallel),
    Rule("branch_restart", Severity.ERROR, structure.branch_restart),
    Rule("fan_out_in_itself", Severity.ERROR, structure.fan_out_in_itself),
    Rule("manager_loop_child", Severity.ERROR, structure.manager_loop_child),
    Rule("human_gate", Severity.ERROR, steps.human_gate),
    Rule("tool_command", Severity.ERROR, steps.tool_command),
    Rule("tool_known", Severity.WARNING, steps.tool_known, local=True, per_value=True),
    Rule("value_known", Severity.WARNING, steps.value_known),
    Rule("tool_variable", Severity.WARNING, steps.tool_variable),
    Rule("name_length", Severity.ERROR, structure.name_length, local=True),
    Rule("value_ours", Severity.WARNING, attributes.value_ours, local=True, per_value=True),
    Rule("exit_reachable", Severity.WARNING, structure.exit_reachable),
    Rule("loop_bounded", Severity.WARNING, structure.loop_bounded),
    Rule("shape_known", Severity.ERROR, words.shape_known, per_value=True),
    Rule("attribute_known", Severity.ERROR, words.attribute_known, local=True, per_value=True),
    Rule("attribute_unused", Severity.ERROR, words.attribute_unused, per_value=True),
    Rule("outcome_known", Severity.ERROR, words.outcome_known, per_value=True),
)


def check(
    graph: Graph,
    *,
    known_types: Collection[str],
    rules: Sequence[Rule] = RULES,
    variables: Variables | None = None,
) -> tuple[Diagnostic, ...]:
    """All findings of the rules, in the order of the file. Nothing is executed."""
    subject = Subject(graph, known_types, variables)
    findings = [finding for rule in rules for finding in _findings(rule, subject)]
    return tuple(sorted(findings, key=by_position))


def _findings(rule: Rule, subject: Subject) -> Iterator[Diagnostic]:
    problems = _once(rule.find(subject)) if rule.per_value else iter(rule.find(subject))
    file = subject.graph.file
    last = None
    for problem in islice(problems, FINDINGS_MAX):
        last = rule.diagnostic(problem, file)
        yield last
    if last is not None and next(problems, None) is not None:
        message = f"{rule.name} has more than these {FINDINGS_MAX} findings"
        yield replace(last, message=message, node_id=None, edge=None, fix="fix these first")


def _once(problems: Iterable[Problem]) -> Iterator[Problem]:
    seen: set[int] = set()
    for problem in problems:
        if problem.value_at is None:
            yield problem
        elif problem.value_at not in seen:
            seen.add(problem.value_at)
            yield problem


RELIED_ON = frozenset(
    {
        *("start_node", "terminal_node", "edge_target_exists"),
        *("condition_syntax", "attribute_type", "manager_loop_child", "human_gate"),
    }
)
"""No run could survive what these forbid, so they stay errors."""


def with_one_severity(rules: Sequence[Rule], name: str, severity: str) -> list[Rule]:
    """The rules, one of them with another severity; InvalidInput if that is not possible."""
    if name not in {rule.name for rule in rules}:
        known = ", ".join(rule.name for rule in rules)
        raise InvalidInput(f"there is no rule {name!r}; the rules are {known}.")
    wanted = _severity(severity)
    if name in RELIED_ON and wanted is not Severity.ERROR:
        raise InvalidInput(f"{name} must stay an error: runs depend on it.")
    return [replace(rule, severity=wanted) if rule.name == name else rule for rule in rules]


def custom_rule(name: str, severity: str, find: Callable[[Subject], Iterable[Problem]]) -> Rule:
    """A function as a rule; the message of an error inside it names the rule."""

    def named(subject: Subject) -> Iterator[Problem]:
        try:
            yield from find(subject)
        except Exception as error:
            message = f"rule {name!r} raised {type(error).__name__}: {error}."
            raise InvalidInput(message.splitlines()[0]) from error

    return Rule(name, _severity(severity), named)


def rules_here(rules: Sequence[Rule], *, has_agent: bool) -> list[Rule]:
    """The rules for a process that executes the run itself: a handler that it lacks is an error.

    Without a handler for agents a run can still be simulated, so that is only mentioned.
    """
    strict = with_one_severity(rules, "type_known", "error")
    return strict if has_agent else [*strict, Rule("agent_served", Severity.INFO, agent_served)]


def _severity(name: str) -> Severity:
    try:
        return Severity(name)
    except ValueError:
        raise InvalidInput(f"{name!r} is not a severity; write error, warning or info.") from None


CHILD_WORKDIR, WORKSPACE = "stack.child_workdir", "workspace"


def children_registered(subject: Subject) -> Iterator[Problem]:
    """The pipelines that a registered pipeline manages are registered, too."""
    graph = subject.graph
    for node in graph.nodes.values():
        owner = node if node.text(CHILD) else graph
        written = owner.text(CHILD)
        if node.kind == MANAGER and written and not can_be_registered(written):
            yield about(
                owner,
                f"manager loop {node.id!r} manages the file {written}, which is not stored with a registered "
                "pipeline",
                key=CHILD,
                fix=f'register that file as well, and write its name: {CHILD}="{_stem(written)}"',
            )


def places_absolute(subject: Subject) -> Iterator[Problem]:
    """A registered pipeline names no directory relative to a file that it does not have."""
    graph = subject.graph
    owners: list[tuple[Graph | Node, str]] = [(graph, WORKSPACE), (graph, CHILD_WORKDIR)]
    owners += [(node, CHILD_WORKDIR) for node in graph.nodes.values() if node.kind == MANAGER]
    for owner, key in owners:
        written = owner.text(key)
        if written and not PurePath(written).is_absolute():
            yield about(
                owner,
                f"{key} of {owner.subject} is relative to the pipeline's file, which a registered pipeline "
                "does not have",
                key=key,
                fix="write an absolute path"
                + (", or leave it out and name the directory with --workspace" if key == WORKSPACE else ""),
            )


def _stem(file: str) -> str:
    stem = PurePath(file).stem
    return stem if can_be_registered(stem) else "NAME"


REGISTERED = (
    Rule("children_registered", Severity.ERROR, children_registered),
    Rule("places_absolute", Severity.ERROR, places_absolute, per_value=True),
)


SECRET = "secret"


def secret_rule(found_in: Callable[[str], Sequence[str]]) -> Rule:
    """The rule; `found_in` names the known secrets in a text."""

    def find(subject: Subject) -> Iterator[Problem]:
        graph = subject.graph
        owners: list[Graph | Node | Edge] = [graph, *graph.nodes.values(), *graph.edges]
        for owner in owners:
            yield from _written(owner, found_in)

    return Rule(SECRET, Severity.WARNING, find, local=True, per_value=True)


def _written(owner: Graph | Node | Edge, found_in: Callable[[str], Sequence[str]]) -> Iterator[Problem]:
    for key in owner.attrs:
        for name in found_in(owner.text(key)):
            yield about(
                owner,
                f"{key} of {owner.subject} contains the value of {name}, which is stored with every run",
                key=key,
                fix=f"remove the value, and let the command read ${name} from its environment",
            )

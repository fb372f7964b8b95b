"""The checker: a table of rules, all of which report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from onward.model.values import Variables
from onward.pipeline.diagnostic import Diagnostic, Severity, by_position
from onward.pipeline.graph import Graph
from onward.pipeline.rules import (
    agents,
    attributes,
    branches,
    control,
    ends,
    gates,
    references,
    shell,
    structure,
    tools,
)
from onward.pipeline.rules.rule import Problem, Rule, Subject
from onward.pipeline.rules.words import names, outcomes, shapes, unused

__all__ = ["RULES", "Problem", "Rule", "Subject", "check"]

FINDINGS_MAX = 100
"""Findings of one rule; more would only hide those of the other rules."""

RULES: tuple[Rule, ...] = (
    Rule("start_node", Severity.ERROR, ends.start_node),
    Rule("terminal_node", Severity.ERROR, ends.terminal_node),
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
    Rule("effort_known", Severity.WARNING, attributes.effort_known, local=True, per_value=True),
    Rule("parallel_join", Severity.WARNING, control.parallel_join),
    Rule("fan_in_has_parallel", Severity.WARNING, control.fan_in_has_parallel),
    Rule("branch_restart", Severity.ERROR, branches.branch_restart),
    Rule("fan_out_in_itself", Severity.ERROR, branches.fan_out_in_itself),
    Rule("manager_loop_child", Severity.ERROR, control.manager_loop_child),
    Rule("human_gate", Severity.ERROR, gates.human_gate),
    Rule("tool_command", Severity.ERROR, tools.tool_command),
    Rule("tool_known", Severity.WARNING, agents.tool_known, local=True, per_value=True),
    Rule("value_known", Severity.WARNING, references.value_known),
    Rule("tool_variable", Severity.WARNING, shell.tool_variable),
    Rule("name_length", Severity.ERROR, structure.name_length, local=True),
    Rule("value_ours", Severity.WARNING, attributes.value_ours, local=True, per_value=True),
    Rule("exit_reachable", Severity.WARNING, ends.exit_reachable),
    Rule("shape_known", Severity.ERROR, shapes.shape_known, per_value=True),
    Rule("attribute_known", Severity.ERROR, names.attribute_known, local=True, per_value=True),
    Rule("attribute_unused", Severity.ERROR, unused.attribute_unused, per_value=True),
    Rule("outcome_known", Severity.ERROR, outcomes.outcome_known, per_value=True),
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

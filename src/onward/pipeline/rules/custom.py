"""Adjust the checker: other severities, and your own rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from onward.errors import InvalidInput
from onward.pipeline.diagnostic import Severity
from onward.pipeline.rules.attributes import agent_served
from onward.pipeline.rules.rule import Problem, Rule, Subject

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
        raise InvalidInput(f"{name} must stay an error: runs rely on it.")
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

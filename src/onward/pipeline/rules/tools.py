"""The rule about shell steps: they have a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from onward.pipeline.graph import Node
from onward.pipeline.rules.rule import Problem, Rule, Subject, about
from onward.pipeline.rules.words.vocabulary import NODE_ATTRIBUTES, meant

TOOL, COMMAND, VARIABLE = "tool", "tool_command", "tool_variable"


def tool_command(subject: Subject) -> Iterator[Problem]:
    """A tool node has a command; without one, its step can only fail."""
    graph = subject.graph
    silent = {*graph.starts, *graph.exits}
    for node in graph.nodes.values():
        if node.kind == TOOL and node.id not in silent and not node.text(COMMAND).strip():
            message = f"tool node {node.id!r} has no command to run"
            typo = misspelt_command(node)
            if typo:
                yield about(node, message, key=typo, fix=f"{typo} has no effect; did you mean {COMMAND}?")
            else:
                yield about(node, message, key=COMMAND, fix=f'write {COMMAND}="..."')


def misspelt_command(node: Node) -> str:
    """The attribute of a tool node that was meant to be its command, if it has none; else empty."""
    if node.kind != TOOL or COMMAND in node.attrs:
        return ""
    unknown = (key for key in node.attrs if key in node.written and key not in NODE_ATTRIBUTES)
    return next((key for key in unknown if meant(key, (COMMAND,))), "")


def rules_beside(kind: str, rules: Sequence[Rule]) -> list[Rule]:
    """The rules for an app with its own handler of a kind: its own tool handler may need no command."""
    if kind != TOOL:
        return list(rules)
    return [replace(rule, find=_nothing) if rule.name in (COMMAND, VARIABLE) else rule for rule in rules]


def _nothing(subject: Subject) -> Iterator[Problem]:
    yield from ()

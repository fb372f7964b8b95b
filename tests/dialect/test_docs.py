"""docs/dialect.md names everything that the reader and the checker know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onward.machine.definition import PRESETS
from onward.pipeline.build import build
from onward.pipeline.graph import SHAPE_KINDS
from onward.pipeline.purpose import is_about_messages
from onward.pipeline.rules.attributes import FIDELITIES, JOIN_POLICIES
from onward.pipeline.rules.check import RULES
from onward.pipeline.source import Severity
from onward.pipeline.stylesheet import PROPERTIES
from onward.pipeline.vocabulary import EDGE_ATTRIBUTES, GRAPH_ATTRIBUTES, NODE_ATTRIBUTES

PAGE = (Path(__file__).parents[2] / "docs/dialect.md").read_text(encoding="utf-8")
ATTRIBUTES = {*GRAPH_ATTRIBUTES, *NODE_ATTRIBUTES, *EDGE_ATTRIBUTES, *PROPERTIES}
VALUES = {*FIDELITIES, *JOIN_POLICIES, *PRESETS, *SHAPE_KINDS, *SHAPE_KINDS.values()}


def test_every_attribute_and_value_is_explained() -> None:
    missing = [
        name
        for name in sorted(ATTRIBUTES | VALUES)
        if not re.search(rf"`[^`]*(?<![\w.]){re.escape(name)}(?![\w.])[^`]*`", PAGE)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("heading", "known"),
    [("graph", GRAPH_ATTRIBUTES), ("node", NODE_ATTRIBUTES), ("edge", EDGE_ATTRIBUTES)],
)
def test_every_attribute_that_is_explained_is_known(heading: str, known: frozenset[str]) -> None:
    """One that the checker does not know can be misspelt or misplaced in silence."""
    (table,) = re.findall(rf"^\| {heading} \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    named = {name for row in table.splitlines() for name in re.findall(r"`([a-z][\w.]+)`", row.split("|")[1])}
    # What else the first column has is a value: `files` `full` `lazy` `off`.
    values = {"full", "lazy", "off", "worktree", "in_place", "auto", "ask", "never", "queue", "steer"}
    assert len(named) > 5
    assert {name for name in named - known - values if not is_about_messages(name)} == set()


@pytest.mark.parametrize("severity", [Severity.ERROR, Severity.WARNING])
def test_every_rule_is_listed_with_its_severity(severity: Severity) -> None:
    heading = {"error": "Errors", "warning": "Warnings"}[severity]
    (listed,) = re.findall(rf"{heading}: ([`\w\s]+)\.", PAGE)
    assert re.findall(r"`(\w+)`", listed) == [rule.name for rule in RULES if rule.severity is severity]


def test_every_contradiction_is_settled() -> None:
    assert re.findall(r"^\| (C\d+) \|", PAGE, re.MULTILINE) == [f"C{number}" for number in range(1, 23)]


def test_the_stylesheet_of_the_page_parses() -> None:
    (sheet,) = re.findall(r"```dot\n(.*?)```", PAGE, re.DOTALL)
    graph = build(
        f"digraph {{ start; exit; review [label=x]; start -> review -> exit {sheet} }}", file="f"
    ).graph
    assert (graph.nodes["review"].llm_model, graph.nodes["start"].reasoning_effort) == ("largest", "medium")

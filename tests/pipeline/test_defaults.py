"""A wrong value is reported once, where it is written, however many nodes and edges have it."""

from __future__ import annotations

import pytest

from tests.pipeline.reading import findings, place


@pytest.mark.parametrize(
    ("rule", "statements", "expected"),
    [
        (
            "attribute_type",
            "node [timeout=900]\na; b; c",
            "2:15 attribute_type timeout of node [...] is '900'",
        ),
        (
            "attribute_type",
            "edge [weight=x]\na; b; c\na -> b; b -> c",
            "2:14 attribute_type weight of edge [...] is 'x'",
        ),
        (
            "attribute_type",
            "a; b; c\na -> b -> c [weight=x]",
            "3:21 attribute_type weight of edge a -> b is 'x'",
        ),
        ("fidelity_valid", "node [fidelity=x]\na; b", "2:16 fidelity_valid fidelity of node [...] is 'x'"),
        (
            "retry_target_exists",
            "node [retry_target=x]\na; b",
            "2:20 retry_target_exists retry_target of node [...] names node 'x', which is not declared",
        ),
        ("effort_known", "node [reasoning_effort=x]\na; b", "2:24 effort_known reasoning_effort is 'x'"),
    ],
)
def test_a_default_is_reported_once_at_its_block(rule: str, statements: str, expected: str) -> None:
    (found,) = findings(f"digraph {{\n{statements}\n}}", rule)
    assert place(found) == expected


def test_a_default_belongs_to_no_node_and_an_own_value_to_its_node() -> None:
    text = "digraph { node [timeout=1]; a; b [timeout=2] }"
    assert [found.node_id for found in findings(text, "attribute_type")] == [None, "b"]

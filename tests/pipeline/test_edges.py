"""Which edge a run takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from onward.pipeline.edges import accelerator, normalise_label, select_edge, true_condition_edge
from tests.pipeline.reading import body


def chosen(
    statements: str,
    *,
    outcome: str = "success",
    label: str = "",
    suggested: Sequence[str] = (),
    context: dict[str, Any] | None = None,
) -> tuple[str, str] | None:
    """Target and reason of the edge that leads on from A."""
    graph = body(statements)
    selection = select_edge(
        graph, "A", outcome=outcome, preferred_label=label, suggested_ids=suggested, context=context or {}
    )
    return (selection.edge.target, selection.reason) if selection else None


def test_no_edges_lead_nowhere() -> None:
    """D25: step 0."""
    assert chosen("B -> A") is None


def test_a_true_condition_beats_everything_else() -> None:
    """D25, P13: weight, label and suggestion do not matter against it."""
    statements = 'A -> B [weight=9, label=go]; A -> C [condition="outcome=success"]'
    assert chosen(statements, label="go", suggested=["B"]) == ("C", "condition")
    assert chosen(statements, outcome="fail") == ("B", "weight")


def test_among_true_conditions_weight_then_name_then_order_decide() -> None:
    """D25: step 1."""
    assert chosen('A -> B [condition="x!=1"]; A -> C [condition="y!=1", weight=1]') == ("C", "condition")
    assert chosen('A -> C [condition="x!=1"]; A -> B [condition="y!=1"]') == ("B", "condition")
    graph = body('A -> B [condition="x!=1", label=first]; A -> B [condition="y!=1", label=second]')
    selection = true_condition_edge(graph, "A", outcome="", preferred_label="", context={})
    assert selection is not None
    assert selection.edge.label == "first"


def test_a_false_condition_is_never_taken() -> None:
    """D25: step 6, and a conditional edge is deaf to labels and suggestions."""
    statements = 'A -> B [condition="outcome=fail", label=go, weight=9]; A -> C [condition="x=1"]'
    assert chosen(statements, label="go", suggested=["B"]) is None
    assert chosen(statements + "; A -> D", label="go", suggested=["B"]) == ("D", "weight")


@pytest.mark.parametrize("condition", ["", "  ", "&&"])
def test_an_empty_condition_is_no_condition(condition: str) -> None:
    """D65: such an edge takes part in the later steps."""
    assert chosen(f'A -> B [condition="{condition}", label=go]; A -> C', label="go") == ("B", "label")


def test_the_preferred_label_takes_the_first_edge_that_has_it() -> None:
    """D25: step 2, normalised, in declaration order."""
    statements = 'A -> C [label="[F] Fix"]; A -> B [label="fix"]; A -> D [weight=5]'
    assert chosen(statements, label=" FIX ") == ("C", "label")
    assert chosen(statements, label="F) fix", suggested=["D"]) == ("C", "label")
    assert chosen(statements, label="unknown") == ("D", "weight")


def test_an_empty_label_matches_nothing() -> None:
    """D25: most edges have no label."""
    assert chosen("A -> C; A -> B [weight=1]", label=" ") == ("B", "weight")


def test_suggested_ids_are_tried_in_their_order() -> None:
    """D25: step 3; only targets of edges count."""
    statements = "A -> B [weight=9]; A -> C; A -> D"
    assert chosen(statements, suggested=["X", "D", "C"]) == ("D", "suggested")
    assert chosen(statements, suggested=["X"]) == ("B", "weight")


def test_the_suggestion_finds_its_edge_even_if_two_labels_look_alike() -> None:
    """C7: a human's choice is carried by its target, not by its label."""
    statements = 'A -> B [label="[Y] Yes"]; A -> C [label="[N] yes"]'
    assert chosen(statements, suggested=["C"]) == ("C", "suggested")


def test_weight_breaks_ties_and_then_the_name() -> None:
    """D25, P14, P15: steps 4 and 5."""
    assert chosen("A -> B; A -> C [weight=2]; A -> D [weight=1]") == ("C", "weight")
    assert chosen("A -> C; A -> B; A -> D [weight=-1]") == ("B", "lexical")
    assert chosen("A -> a; A -> B") == ("B", "lexical")


def test_the_only_edge_is_taken_for_its_weight() -> None:
    """D25: whatever it weighs."""
    assert chosen("A -> B [weight=-5]") == ("B", "weight")


def test_conditions_see_outcome_label_and_context() -> None:
    """D25, P8: success and fail branches, and the context after the step."""
    statements = """
        A -> B [condition="outcome=success && context.tests=green"]
        A -> C [condition="outcome=fail"]
        A -> D [condition="preferred_label=later"]
    """
    assert chosen(statements, context={"tests": "green"}) == ("B", "condition")
    assert chosen(statements, outcome="fail") == ("C", "condition")
    assert chosen(statements, label="later") == ("D", "condition")
    assert chosen(statements) is None


def test_a_failed_step_follows_only_a_true_condition() -> None:
    """C3: an unconditional edge is not a way out of a failure."""
    graph = body('A -> B; A -> C [condition="outcome=fail"]; D -> B')
    selection = true_condition_edge(graph, "A", outcome="fail", preferred_label="", context={})
    assert selection is not None
    assert (selection.edge.target, selection.reason) == ("C", "condition")
    assert true_condition_edge(graph, "A", outcome="retry", preferred_label="", context={}) is None
    assert true_condition_edge(graph, "D", outcome="fail", preferred_label="", context={}) is None


def test_a_condition_is_read_once_per_graph() -> None:
    """D25: selection happens on every step."""
    (edge,) = body('A -> B [condition="x=1"]').edges
    assert edge.guard is edge.guard


@pytest.mark.parametrize(
    ("label", "normal", "key"),
    [
        ("[Y] Yes, deploy", "yes, deploy", "Y"),
        ("Y) Yes", "yes", "Y"),
        ("y - Yes", "yes", "y"),
        ("  [1]   One ", "one", "1"),
        ("Ship It", "ship it", "S"),
        ("[Y]es", "[y]es", "["),
        ("[WIP] Draft", "[wip] draft", "["),
        ("build - fast", "build - fast", "b"),
        ("[A] [B] c", "[b] c", "A"),
        ("É) été", "été", "É"),
        ("_) x", "_) x", "_"),
        ("", "", ""),
        ("   ", "", ""),
    ],
)
def test_labels_are_compared_without_case_space_and_one_accelerator(
    label: str, normal: str, key: str
) -> None:
    """D25, D41: `[K] `, `K) ` and `K - `, else the first character."""
    assert normalise_label(label) == normal
    assert accelerator(label) == key

"""Where a run goes: the chosen edge, a failure's way out, a gate's answer, the way back."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onward.machine.plan.route import failure_transition, goal_transition, next_transition, unmet_gate
from onward.model.context import FrozenMap
from onward.model.events import Outcome, StepStatus, Transition
from onward.model.gate import Choice
from onward.model.run import Gate
from onward.pipeline.gate import choices_of, edge_of, meant
from tests.machine.play import Play, define

XYZ = (
    "a [type=tool]; x [type=tool]; y [type=tool]; z [type=tool]; start -> a; "
    "x -> exit; y -> exit; z -> exit; "
)


def on(body: str, *, context: dict[str, Any] | None = None, **outcome: Any) -> tuple[str, str] | None:
    """Where a step of node a that did not fail leads, and why."""
    graph = define(XYZ + body).graph
    outcome.setdefault("status", StepStatus.SUCCESS)
    found = next_transition(graph, "a", Outcome(**outcome), context or {})
    return None if found is None else (found.to, found.reason)


def out(body: str, *, context: dict[str, Any] | None = None, **outcome: Any) -> tuple[str, str] | None:
    """Where a failure of node a leads, and why."""
    definition = define(XYZ + body)
    failed = Outcome(status=StepStatus.FAIL, **outcome)
    found = failure_transition(definition, definition.graph.nodes["a"], failed, context or {})
    return None if found is None else (found.to, found.reason)


# -- which edge (tests/pipeline/test_edges.py has all five steps of the choice) --


def test_a_suggestion_beats_weights_but_names_only_targets_of_edges() -> None:
    """D25, O18: the third step; a suggestion is no jump to anywhere."""
    body = "a -> x [weight=9]; a -> y; y -> z"
    assert on(body, suggested_next_ids=("z", "y")) == ("y", "suggested")


def test_a_label_that_another_step_preferred_says_nothing() -> None:
    """D63: the preferred label is the outcome's own; the context only remembers the last one."""
    body = 'a -> x; a -> y [label=go]; a -> z [condition="preferred_label=go"]'
    assert on(body, context={"preferred_label": "go"}) == ("x", "lexical")
    assert on(body, context={"preferred_label": "go"}, preferred_label="go") == ("z", "condition")


@pytest.mark.parametrize(("context", "expected"), [({"outcome": "fail"}, "x"), ({}, "y")])
def test_a_skipped_step_is_routed_by_the_outcome_before_it(context: dict[str, Any], expected: str) -> None:
    """C21."""
    body = 'a -> x [condition="outcome=fail"]; a -> y; y -> z'
    assert on(body, status=StepStatus.SKIPPED, context=context) == (
        expected,
        "condition" if context else "weight",
    )


def test_the_edge_itself_is_recorded() -> None:
    graph = define(XYZ + "a -> x [weight=1]; a -> x [weight=2]; a -> y; a -> z").graph
    found = next_transition(graph, "a", Outcome(status=StepStatus.SUCCESS), {})
    assert found is not None
    assert found.edge is not None
    assert graph.edges[found.edge].weight == 2


# -- failures ------------------------------------------------------------------------------------------

ALL_WAYS = 'a -> x [condition="outcome=fail"]; a -> y; a [retry_target=y, fallback_retry_target=z]; a -> z'


def test_a_failure_looks_for_a_way_out_in_this_order() -> None:
    """C3: a true condition, then the retry target, then the fallback, then nothing."""
    assert out(ALL_WAYS) == ("x", "condition")
    body = 'a -> x [condition="outcome=retry"]; a -> y; a -> z; a [retry_target=y, fallback_retry_target=z]'
    assert out(body) == ("y", "retry_target")
    body = "a -> x; a -> y; a -> z; a [fallback_retry_target=z]"
    assert out(body) == ("z", "fallback_retry_target")


def test_a_target_that_does_not_exist_is_passed_over() -> None:
    body = "a -> x; a -> y; a -> z; a [retry_target=nowhere, fallback_retry_target=z]"
    assert out(body) == ("z", "fallback_retry_target")


def test_a_jump_is_not_an_edge() -> None:
    definition = define(XYZ + "a -> x; a -> y; a -> z; a [retry_target=x]")
    node = definition.graph.nodes["a"]
    found = failure_transition(definition, node, Outcome(status=StepStatus.FAIL), {})
    assert found == Transition(to="x", reason="retry_target", edge=None)


def test_a_failure_does_not_pass_for_a_success() -> None:
    """C3: a plain edge is not a way out, however it is labelled or suggested."""
    body = "a -> x [label=go]; a -> y; a -> z"
    assert out(body, preferred_label="go", suggested_next_ids=("x",)) is None


def test_the_graphs_targets_are_for_goal_gates_only() -> None:
    assert out("retry_target=x; a -> x; a -> y; a -> z") is None


@pytest.mark.parametrize("where", ["continue_on_fail=true;", "a [continue_on_fail=true];"])
def test_a_plain_edge_can_be_allowed(where: str) -> None:
    """C3: only where the pipeline says so."""
    assert out(where + " a -> x [label=go]; a -> y; a -> z", preferred_label="go") == ("x", "label")


def test_a_node_can_forbid_what_its_graph_allows() -> None:
    assert out("continue_on_fail=true; a [continue_on_fail=false]; a -> x; a -> y; a -> z") is None


def test_a_plain_edge_to_a_conditional_is_a_way_out() -> None:
    """P8: the conditional's own edges look at the outcome."""
    body = "c [shape=diamond]; a -> c [weight=1]; a -> x; c -> y; c -> z"
    assert out(body) == ("c", "weight")


def test_without_edges_there_is_no_way_out() -> None:
    definition = define("a [type=tool]; b [type=tool]; start -> a; start -> b; b -> exit")
    node = definition.graph.nodes["a"]
    assert failure_transition(definition, node, Outcome(status=StepStatus.FAIL), {}) is None


# -- goal gates ----------------------------------------------------------------------------------------

GATES = "g [type=tool, goal_gate=true]; h [type=tool, goal_gate=true]; start -> g -> h -> exit; "


@pytest.mark.parametrize(
    ("outcomes", "unmet"),
    [
        ({}, None),
        ({"start": "fail"}, None),
        ({"g": "success", "h": "partial_success"}, None),
        ({"h": "fail", "g": "fail"}, "h"),
        ({"g": "fail", "h": "fail"}, "g"),
        ({"h": "success", "g": "fail"}, "g"),
    ],
)
def test_the_first_unmet_gate_in_the_order_of_visits(outcomes: dict[str, str], unmet: str | None) -> None:
    """D28, D29: visited gates only; success and partial success meet them."""
    play = Play(GATES)
    run = replace(play.run, outcomes=FrozenMap(outcomes))
    assert unmet_gate(play.definition, run) == unmet


def test_a_pipeline_without_goal_gates_has_none_unmet() -> None:
    play = Play("a [type=tool, continue_on_fail=true]; start -> a -> exit")
    play.fail()
    assert unmet_gate(play.definition, play.run) is None


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("", None),
        ("fallback_retry_target=start", "start"),
        ("retry_target=h; fallback_retry_target=start", "h"),
        ("retry_target=h; g [fallback_retry_target=g]", "g"),
        ("retry_target=h; g [retry_target=start, fallback_retry_target=g]", "start"),
        ("retry_target=h; g [retry_target=nowhere]", "h"),
    ],
)
def test_an_unmet_gate_goes_back_to_the_nearest_target_that_is_written(
    written: str, target: str | None
) -> None:
    """D31, D32: the gate's own, its fallback, the graph's, its fallback."""
    found = goal_transition(define(GATES + written).graph, "g")
    assert (found and found.to) == target


# -- choices of a human gate ---------------------------------------------------------------------------


def gate(*labels: str) -> tuple[Gate, list[str]]:
    """A gate with these labels, whose choices lead to n1, n2 and so on; and their keys."""
    nodes = "".join(f"n{i} [type=tool]; n{i} -> exit; " for i, _ in enumerate(labels, 1))
    edges = "".join(f'g -> n{i} [label="{label}"]; ' for i, label in enumerate(labels, 1))
    graph = define(f"g [shape=hexagon]; start -> g; {nodes} {edges}").graph
    choices = choices_of(graph, graph.nodes["g"])
    return Gate(gate="g#1", node="g", text="?", choices=choices, opened_at_us=0), [c.key for c in choices]


@pytest.mark.parametrize(
    ("labels", "keys"),
    [
        (["[Y] Yes", "N) No", "L - Later", "maybe"], ["Y", "N", "L", "M"]),
        (["Stop", "Start", "Stay"], ["S", "2", "3"]),
        (["2 apples", "2 pears"], ["2", "3"]),
        (["3 a", "3 b", "3 c"], ["3", "2", "4"]),
        (["", ""], ["N", "2"]),
        (["Go", "  "], ["G", "2"]),
    ],
)
def test_every_choice_has_a_key_of_its_own(labels: list[str], keys: list[str]) -> None:
    """P12, D41: the accelerator, else the first character, else a number that is free."""
    assert gate(*labels)[1] == keys


def test_a_choice_without_a_label_is_called_by_its_target() -> None:
    assert gate("")[0].choices == (Choice(key="N", label="n1", to="n1"),)


@pytest.mark.parametrize(
    ("answer", "to"),
    [
        ("y", "n1"),
        (" Y ", "n1"),
        ("YES", "n1"),
        ("[Y] Yes", "n1"),
        ("no thanks", "n2"),
        ("n2", "n2"),
        ("perhaps", None),
        ("", None),
    ],
)
def test_an_answer_is_a_key_a_label_or_a_target(answer: str, to: str | None) -> None:
    asked, _ = gate("[Y] Yes", "No thanks")
    found = meant(asked.type, asked.choices, answer)
    assert (found and found.to) == to


def test_labels_that_differ_only_in_their_accelerator_are_not_mixed_up() -> None:
    """C7: an answer that could mean two choices means neither."""
    asked, keys = gate("Yes", "[Y] Yes", "[J] Yes")
    assert keys == ["1", "Y", "J"]
    assert [meant(asked.type, asked.choices, label) for label in ("Yes", "[Y] Yes", "[J] Yes")] == list(
        asked.choices
    )
    assert meant(asked.type, asked.choices, "yes") is None


def test_a_choice_stands_for_its_own_edge_even_beside_another_to_the_same_node() -> None:
    """C7: fidelity and the like are read off the edge that the person chose."""
    graph = define(
        "g [shape=hexagon]; a [type=tool]; start -> g; "
        "g -> a [label=Quick]; g -> a [label=Slow]; g -> a; a -> exit"
    ).graph
    for choice in choices_of(graph, graph.nodes["g"]):
        edge = edge_of(graph, "g", choice)
        assert edge is not None
        assert (edge.label or "a") == choice.label
    renamed = edge_of(graph, "g", Choice(key="X", label="Other", to="a"))
    assert renamed is not None
    assert renamed.label == "Quick"
    assert edge_of(graph, "g", Choice(key="X", label="Other", to="gone")) is None


@pytest.mark.parametrize("key", ["current_node", "context.current_node"])
def test_a_condition_can_ask_for_the_node_that_it_leads_on_from(key: str) -> None:
    """Engine keys are there without being stored."""
    play = Play(
        f'a [type=tool]; b [type=tool]; start -> a; a -> exit; a -> b [condition="{key}=a"]; b -> exit'
    )
    play.succeed()
    assert play.started.step == "b#1"
    assert "current_node" not in play.run.context


def test_a_condition_can_ask_how_many_retries_a_failure_had_spent() -> None:
    play = Play(
        "a [type=tool, max_retries=1]; b [type=tool]; start -> a; a -> exit; b -> exit; "
        'a -> b [condition="outcome=fail && internal.retry_count.a=1"]'
    )
    play.fail(retryable=True)
    play.now_us += 10_000_000
    play.go()
    play.fail(retryable=True)
    assert play.started.step == "b#1"


def test_a_success_resets_the_count_that_a_condition_sees() -> None:
    play = Play(
        "a [type=tool, max_retries=1]; b [type=tool]; start -> a; a -> exit; b -> exit; "
        'a -> b [condition="internal.retry_count.a=0"]'
    )
    play.fail(retryable=True)
    play.now_us += 10_000_000
    play.go()
    play.succeed()
    assert play.started.step == "b#1"


def test_the_edges_of_a_fan_out_see_the_engines_keys_too() -> None:
    play = Play(
        "f [shape=component]; j [shape=tripleoctagon]; a [type=tool]; b [type=tool]; start -> f; "
        'f -> a [condition="current_node=f"]; f -> b [condition="current_node=start"]; '
        "a -> j; b -> j; j -> exit"
    )
    assert list(play.run.open_steps) == ["f#1.a/a#1"]

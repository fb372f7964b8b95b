"""What the checker says about the nodes that steer a run (D43, D44, C8)."""

from __future__ import annotations

import pytest

from onward.errors import InvalidPipeline
from onward.pipeline.build import build
from tests.pipeline.reading import findings, place

FORK = "P [shape=component]\nF [shape=tripleoctagon]\na\nb\nexit\n"


@pytest.mark.parametrize(
    ("rule", "statements", "expected"),
    [
        ("parallel_join", FORK + "P -> a -> F -> exit\nP -> b -> F", []),
        ("parallel_join", "a; b", []),
        (
            "parallel_join",
            "P [shape=component]",
            ["2:1 parallel_join parallel node 'P' has no branches"],
        ),
        (
            "parallel_join",
            FORK + "P -> a -> exit\nP -> b -> exit",
            [
                "2:1 parallel_join the branches of parallel node 'P' share no fan-in; they end at the exit",
            ],
        ),
        (
            "parallel_join",
            FORK + "P -> a -> F -> exit\nP -> b",
            ["2:1 parallel_join no common end was found for the branches of parallel node 'P'"],
        ),
        ("fan_in_has_parallel", FORK + "P -> a -> F", []),
        (
            "fan_in_has_parallel",
            FORK + "a -> F -> P -> b",
            ["3:1 fan_in_has_parallel no parallel node leads to fan-in 'F'; it has nothing to join"],
        ),
        (
            "attribute_type",
            "P [join_policy=quorum, max_parallel=0]\nQ [join_policy=first_success, max_parallel=8]",
            [
                "2:16 attribute_type join_policy of node 'P' is 'quorum'",
                "2:37 attribute_type max_parallel of node 'P' is '0'",
            ],
        ),
        (
            "manager_loop_child",
            "m [shape=house]",
            ["2:1 manager_loop_child manager loop 'm' has no pipeline to manage"],
        ),
        (
            "tool_command",
            't [shape=parallelogram]\nu [type=tool, tool_command=" "]',
            [
                "2:1 tool_command tool node 't' has no command to run",
                "3:28 tool_command tool node 'u' has no command to run",
            ],
        ),
        ("tool_command", "t [shape=parallelogram, tool_command=make]\nstart [shape=parallelogram]", []),
        ("manager_loop_child", 'graph [stack.child_dotfile="c.dot"]\nm [shape=house]', []),
        ("manager_loop_child", 'm [type="stack.manager_loop", stack.child_dotfile="c.dot"]', []),
        (
            "attribute_type",
            'm [manager.poll_interval=soon, manager.max_cycles=0, manager.stop_condition="a || b",\n'
            'manager.actions="observe,panic", stack.child_autostart=perhaps]',
            [
                "2:26 attribute_type manager.poll_interval of node 'm' is 'soon'",
                "2:51 attribute_type manager.max_cycles of node 'm' is '0'",
                "2:77 attribute_type manager.stop_condition of node 'm' is 'a || b'",
                "3:17 attribute_type manager.actions of node 'm' is 'observe,panic'",
                "3:56 attribute_type stack.child_autostart of node 'm' is 'perhaps'",
            ],
        ),
        (
            "attribute_type",
            'm [manager.stop_condition="context.done=yes", manager.actions="observe, steer,wait"]',
            [],
        ),
    ],
)
def test_a_rule_names_what_is_wrong_at_its_place(rule: str, statements: str, expected: list[str]) -> None:
    found = findings(f"digraph G {{\n{statements}\n}}", rule)
    assert [place(finding) for finding in found] == expected


def test_the_advice_names_what_there_is() -> None:
    (policy,) = findings("digraph { p [join_policy=k_of_n] }", "attribute_type")
    assert policy.fix == "write one of wait_all, first_success"
    (actions,) = findings('digraph { m [manager.actions=""] }', "attribute_type")
    assert actions.fix == "write some of observe, steer, wait, separated by commas"


def test_a_time_limit_without_a_unit_is_refused_because_readers_differ_on_it() -> None:
    """Some read 900 as seconds, others as milliseconds; a time limit must not depend on who reads it."""
    (found,) = findings("digraph { a [timeout=900] }", "attribute_type")
    assert found.fix == "write a whole number with its unit, such as 250ms, 30s, 15m, 2h or 1d"


def test_names_of_the_first_dialect_are_accepted() -> None:
    """`default_max_retry` is now `default_max_retries`; if both stand there, the new one counts."""
    text = "digraph {{ {} start; exit; a [label=x]; start -> a -> exit }}"
    old = build(text.format("default_max_retry=4;"), file="f.dot")
    assert (old.graph.default_max_retries, old.warnings) == (4, ())
    both = build(text.format("default_max_retry=4; default_max_retries=2;"), file="f.dot")
    assert both.graph.default_max_retries == 2
    with pytest.raises(InvalidPipeline, match="default_max_retry of the graph is 'x'"):
        build(text.format("default_max_retry=x;"), file="f.dot")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fan_in", [True, False])
def test_five_thousand_nodes_of_parallels_are_soon_checked(fan_in: bool) -> None:
    """S22: one after the other, each with its fan-in, or none with one."""
    blocks = "".join(
        f"p{n} [shape=component]; a{n}; b{n}; f{n} [shape={'tripleoctagon' if fan_in else 'box'}]\n"
        f"p{n} -> a{n} -> f{n} -> p{n + 1}; p{n} -> b{n} -> f{n}\n"
        for n in range(1_200)
    )
    text = f"digraph {{ start; exit; p1200; start -> p0; p1200 -> exit\n{blocks} }}"
    assert len(findings(text, "parallel_join")) == (0 if fan_in else 101)

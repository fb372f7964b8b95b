"""The attributes that Onward adds to the dialect are checked before a run, not in the middle of one."""

from __future__ import annotations

import pytest

from onward import config
from onward.errors import InvalidPipeline
from onward.machine.definition import PRESETS
from onward.pipeline.build import build
from onward.pipeline.rules.attributes import FILE_MODES, RETRY_POLICIES

SOURCE = """digraph g {{ {graph} start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt=p {node}]
start -> a -> exit }}"""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_visits", "many"),
        ("max_steps", "-1"),
        ("max_reroutes", "soon"),
        ("retry_on_fail", "maybe"),
        ("continue_on_fail", "perhaps"),
        ("retry_policy", "patient-ish"),
        ("files", "some"),
        ("tool_hooks.timeout", "soon"),
    ],
)
def test_a_graph_attribute_of_ours_with_a_wrong_value_is_an_error_with_its_place(
    key: str, value: str
) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        build(SOURCE.format(graph=f'graph [{key}="{value}"]', node=""), file="<test>")
    assert [(found.rule, found.line) for found in refused.value.diagnostics] == [("attribute_type", 1)]
    assert key in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("continue_on_fail", "perhaps"),
        ("retry_policy", "often"),
        ("tool_hooks.timeout", "5"),
        ("manager.steer_cooldown", "a while"),
        ("manager.actions", "observe,fire"),
        ("manager.stop_condition", "context.done=="),
    ],
)
def test_a_node_attribute_of_ours_with_a_wrong_value_is_an_error(key: str, value: str) -> None:
    with pytest.raises(InvalidPipeline, match=key):
        build(SOURCE.format(graph="", node=f', {key}="{value}"'), file="<test>")


@pytest.mark.parametrize(("key", "ours"), [("files", "full, lazy, off"), ("workspace", "own, shared")])
def test_a_name_that_others_have_too_is_ignored_with_a_warning(key: str, ours: str) -> None:
    """A file for another program may list its files; that says nothing about ours."""
    built = build(SOURCE.format(graph="", node=f', {key}="main.py"'), file="<test>")
    assert [(found.rule, found.message, found.fix) for found in built.warnings] == [
        ("value_ours", f"{key} of node 'a' is 'main.py', which is ignored", f"Onward's own values are {ours}")
    ]
    assert (
        build(
            SOURCE.format(graph="", node=f', type=mine, {key}="x"'), file="<t>", known_types=["mine"]
        ).warnings
        == ()
    )


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_every_retry_policy_there_is_may_be_written(policy: str) -> None:
    build(
        SOURCE.format(graph=f"graph [retry_policy={policy}]", node=f", retry_policy={policy}"), file="<test>"
    )


def test_lint_and_planner_know_the_same_retry_policies() -> None:
    assert set(RETRY_POLICIES) == set(PRESETS)


@pytest.mark.parametrize("mode", FILE_MODES)
def test_every_way_to_leave_files_may_be_written(mode: str) -> None:
    build(SOURCE.format(graph=f"graph [files={mode}]", node=f", files={mode}"), file="<test>")


def test_lint_and_settings_know_the_same_ways_to_leave_files() -> None:
    assert FILE_MODES == config.FILE_MODES


@pytest.mark.parametrize(
    ("graph", "node", "message", "fix"),
    [
        (
            "graph [on_message=sometimes]",
            "",
            "on_message of the graph is 'sometimes'",
            "write one of auto, ask, never",
        ),
        (
            "graph [while_running=wait]",
            "",
            "while_running of the graph is 'wait'",
            "write one of queue, steer",
        ),
        *(
            ("", f', required_for_resume="{value}"', f"required_for_resume of node 'a' is '{value}'", fix)
            for value, fix in (
                ("yes", "write true, false, or a condition on inputs such as intent=build"),
                ("", "write true, false, or a condition on inputs such as intent=build"),
                ("outcome=success", "write true, false, or a condition on inputs such as intent=build"),
                (
                    "intent==build",
                    "write true, false, or a condition on inputs such as intent=build: "
                    "'==' is not allowed: write a single '='",
                ),
            )
        ),
    ],
)
def test_what_a_pipeline_says_about_chats_is_checked(graph: str, node: str, message: str, fix: str) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        build(SOURCE.format(graph=graph, node=node), file="<test>")
    assert [(found.rule, found.message, found.fix) for found in refused.value.diagnostics] == [
        ("attribute_type", message, fix)
    ]


@pytest.mark.parametrize("value", ["true", "false", '"true"', '"intent=build && context.scope!=styling"'])
def test_what_a_pipeline_may_say_about_chats(value: str) -> None:
    graph = "graph [on_message=ask, while_running=steer]"
    built = build(SOURCE.format(graph=graph, node=f", required_for_resume={value}"), file="<test>")
    assert built.warnings == ()


def test_a_requirement_on_a_node_that_only_passes_has_no_effect_and_that_is_said() -> None:
    source = SOURCE.replace("shape=Mdiamond", "shape=Mdiamond, required_for_resume=true")
    built = build(source.format(graph="", node=""), file="<test>")
    assert [(found.rule, found.message) for found in built.warnings] == [
        ("attribute_unused", "required_for_resume of node 'start' has no effect: it is the start")
    ]

"""`allowed_tools`: where it may be written, and what is said about names that allow nothing."""

from __future__ import annotations

import pytest

from onward.errors import InvalidPipeline
from onward.pipeline.build import build
from onward.pipeline.source import Severity

LINE = """digraph g {{ {graph} start [shape=Mdiamond] exit [shape=Msquare]
    a [prompt="?"{node}] start -> a -> exit }}"""


def found(graph: str = "", node: str = "") -> list[tuple[str, str | None]]:
    pipeline = build(LINE.format(graph=graph, node=node), file="<test>")
    return [(one.message, one.fix) for one in pipeline.warnings if one.rule == "tool_known"]


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("shel", "write shell"),
        ("Read", "write read"),
        ("Bash", "write shell"),
        ("Grep", "write search"),
        ("http-get", "write http_get"),
        ("webfetch", "write http_get"),
    ],
)
def test_a_name_that_is_nearly_a_tool_is_named(written: str, fix: str) -> None:
    message = f"allowed_tools of node 'a' has {written!r}, which is not a tool"
    assert found(node=f', allowed_tools="list, {written}"') == [(message, fix)]


def test_a_limit_in_brackets_is_told_not_to_be_one() -> None:
    [(_, fix)] = found(node=', allowed_tools="Bash(git:*)"')
    assert fix is not None
    assert fix.startswith("write shell; its use cannot be restricted here")


@pytest.mark.parametrize(
    "written", ["", "read,write,edit,list,search,shell,http_get,http_send", "github__*", "mine"]
)
def test_other_names_may_be_tools_of_an_app_or_a_server(written: str) -> None:
    assert found(node=f', allowed_tools="{written}"') == []


def test_the_graph_has_a_default_for_its_nodes() -> None:
    pipeline = build(LINE.format(graph='graph [allowed_tools="read"]', node=""), file="<test>")
    assert pipeline.graph.nodes["a"].text("allowed_tools") == "read"
    own = build(LINE.format(graph='graph [allowed_tools="read"]', node=', allowed_tools=""'), file="<test>")
    assert own.graph.nodes["a"].text("allowed_tools") == ""
    assert found(graph='graph [allowed_tools="Raed"]') == [
        ("allowed_tools of the graph has 'Raed', which is not a tool", "write read")
    ]


def test_a_typo_in_the_attribute_is_an_error_because_it_would_allow_the_default() -> None:
    with pytest.raises(InvalidPipeline) as refused:
        build(LINE.format(graph="", node=', alowed_tools="read"'), file="<test>")
    (error,) = [one for one in refused.value.diagnostics if one.severity is Severity.ERROR]
    assert error.rule == "attribute_known"

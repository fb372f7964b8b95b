"""Rules of the checker as an app wants them (C4, and the dialect's extra rules)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onward import Onward
from onward.errors import InvalidInput, InvalidPipeline
from onward.handlers.port import StepContext
from onward.pipeline.rules.check import RULES, Problem, Subject

ORPHAN = "digraph { start; exit; a [label=x]; start -> exit }"


async def rules_of(app: Onward, source: str = ORPHAN) -> list[str]:
    """The warnings of a pipeline that an app prepares."""
    async with app:
        return [warning.rule for warning in (await app.pipeline(source)).warnings]


async def test_an_orphan_can_be_a_warning() -> None:
    """C4, P6: an error unless the app says otherwise."""
    with pytest.raises(InvalidPipeline, match="cannot be reached"):
        await rules_of(Onward(":memory:"))
    app = Onward(":memory:")
    app.severity("reachability", "warning")
    assert await rules_of(app) == ["reachability"]
    assert all(rule.severity == "error" for rule in RULES if rule.name == "reachability")


async def test_a_warning_can_be_an_error() -> None:
    app = Onward(":memory:")
    app.severity("prompt_on_llm_nodes", "error")
    with pytest.raises(InvalidPipeline, match="neither a prompt nor a label"):
        await rules_of(app, "digraph { start; exit; a; start -> a -> exit }")


@pytest.mark.parametrize(
    ("rule", "severity", "said"),
    [
        ("start_node", "warning", "start_node must stay an error: runs depend on it"),
        ("orphans", "warning", "there is no rule 'orphans'; the rules are start_node, terminal_node"),
        ("reachability", "fatal", "'fatal' is not a severity; write error, warning or info"),
    ],
)
def test_what_cannot_be_overridden_is_refused(rule: str, severity: str, said: str) -> None:
    app = Onward(":memory:")
    with pytest.raises(InvalidInput, match=said):
        app.severity(rule, severity)


async def test_a_rule_of_ones_own_speaks_with_the_others() -> None:
    app = Onward(":memory:")
    app.severity("reachability", "info")

    @app.rule("short_labels")
    def short_labels(subject: Subject) -> Iterator[Problem]:
        for node in subject.graph.nodes.values():
            if len(node.text("label")) == 1:
                yield Problem(f"{node.id} is labelled in a hurry", node.line, node.column, node_id=node.id)

    assert await rules_of(app) == ["reachability", "short_labels"]


async def test_a_rule_that_raises_is_named() -> None:
    app = Onward(":memory:")

    @app.rule("clumsy", "error")
    def clumsy(subject: Subject) -> Iterator[Problem]:
        raise KeyError("oops")

    with pytest.raises(InvalidInput, match="rule 'clumsy' raised KeyError: 'oops'"):
        await rules_of(app)


async def test_a_handler_of_ones_own_for_tools_may_need_no_command() -> None:
    """Registering a type that exists replaces it, and with it what its nodes must say."""
    source = "digraph { start; exit; a [shape=parallelogram]; start -> a -> exit }"
    with pytest.raises(InvalidPipeline, match="tool node 'a' has no command to run"):
        await rules_of(Onward(":memory:"), source)
    app = Onward(":memory:")

    @app.handler("tool")
    async def tool(step: StepContext) -> None:
        """Needs nothing."""

    assert await rules_of(app, source) == []

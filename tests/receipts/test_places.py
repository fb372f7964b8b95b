"""Where receipts lie: a name of its own for every step and agent, none of which leads elsewhere."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.model.ids import step_id
from onward.receipts.folder import CHARACTERS_MAX, flow_name, is_finished_file, step_file

PLAIN = re.compile(r"[A-Za-z0-9_.%~+\-]+")
HOSTILE = ["", ".", "..", "../../etc", "/etc/passwd", "a\0b", "a\nb", "-rf", "\ud800", "é" * 300, "x.draft"]


@pytest.mark.parametrize(
    ("step", "agent", "name"),
    [
        ("plan#1", "codergen", "plan-codergen.json"),
        ("plan#2", "codergen", "plan.2-codergen.json"),
        ("plan#12", "claude-step", "plan.12-claude-step.json"),
        ("fan#1.lint/lint#2", "tool", "fan-1.lint+lint.2-tool.json"),
        ("f#1.a/g#2.b/c#1", "tool", "f-1.a+g-2.b+c-tool.json"),
        ("ask#1", "wait.human", "ask-wait.human.json"),
        ("a.2#1", "tool", "a%2E2-tool.json"),
        ("a#1", "x.draft", "a-x%2Edraft.json"),
    ],
)
def test_a_receipt_is_named_after_its_step_and_agent(step: str, agent: str, name: str) -> None:
    assert step_file(step, agent) == name


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_leads_nowhere(name: str) -> None:
    for made in (flow_name(name), step_file(step_id(name, 1), name), step_file(f"f#1.x/{name}#2", "tool")):
        assert PLAIN.fullmatch(made)
        assert not made.startswith(".")
        assert len(made) <= CHARACTERS_MAX + len(".json")
    assert is_finished_file(step_file(step_id(name, 1), name)), "a receipt is never taken for a draft"


def test_a_flow_does_not_meet_other_files_of_the_run() -> None:
    names = ["artifacts", "manifest.json", "checkpoint.json"]
    assert [flow_name(name) for name in names] == ["artifacts-", "manifest.json-", "checkpoint.json-"]
    assert flow_name("build") == "build"
    assert flow_name("artifacts-") != flow_name("artifacts")


WORDS = st.text(alphabet="ab.-+%2", min_size=1, max_size=4)
STEPS = st.builds(
    lambda branch, node, visit: step_id(node, visit, branch),
    st.one_of(st.just(""), st.builds(lambda fan, to: f"{fan}#1.{to}", WORDS, WORDS)),
    WORDS,
    st.integers(1, 3),
)


@given(st.tuples(STEPS, WORDS), st.tuples(STEPS, WORDS))
def test_no_two_steps_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (step_file(*one) == step_file(*other)) == (one == other)


@pytest.mark.parametrize(
    "name", [".a-tool.json.12.part", "a-tool.draft.json", "a-tool.json.before-1", "notes"]
)
def test_drafts_and_other_files_are_no_receipts(name: str) -> None:
    assert not is_finished_file(name)

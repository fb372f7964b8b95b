"""Identities: what they look like, and that they never depend on history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.errors import InvalidInput
from onward.model.ids import branch_of, check_run_id, display_id, idempotency_key, step_id

own_ids = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=64)
nodes = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@given(own_ids)
def test_a_caller_may_choose_an_id(run_id: str) -> None:
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize("run_id", ["", "A", "a b", "a/b", "a#1", "ä", "a" * 65, "a\n", "../x", "a_b"])
def test_what_cannot_be_an_id_is_refused_with_what_can(run_id: str) -> None:
    with pytest.raises(InvalidInput, match="1 to 64 of the characters a-z, 0-9 and '-'"):
        check_run_id(run_id)


@given(own_ids)
def test_a_display_id_is_six_characters_that_nobody_mixes_up(run_id: str) -> None:
    short = display_id(run_id)
    assert len(short) == 6
    assert not set(short) & set("ilou")
    assert short.isalnum()
    assert short == short.lower()
    assert display_id(run_id) == short


def test_display_ids_of_neighbours_differ() -> None:
    """O13: a fork has a display id of its own, because it has an id of its own."""
    ids = {display_id(f"run-{number}") for number in range(1_000)}
    assert len(ids) > 995


def test_a_display_id_never_changes() -> None:
    """People write them down."""
    assert display_id("run-1") == "tx1124"


@given(nodes, st.integers(1, 10**6))
def test_a_step_is_its_node_and_visit(node: str, visit: int) -> None:
    step = step_id(node, visit)
    assert step == f"{node}#{visit}"
    assert branch_of(step) == ""


@given(nodes, st.integers(1, 10**6), nodes, nodes)
def test_a_step_in_a_branch_knows_its_branch(node: str, visit: int, outer: str, inner: str) -> None:
    branch = f"{outer}/{inner}"
    step = step_id(node, visit, branch)
    assert step == f"{branch}/{node}#{visit}"
    assert branch_of(step) == branch


def test_an_idempotency_key_is_the_same_on_every_attempt() -> None:
    """Design §2, I11: run and step, nothing that a crash or a retry changes."""
    assert idempotency_key("r", "a#2") == "r/a#2"

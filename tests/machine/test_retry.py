"""When to try again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.machine.definition import DELAY_S_MAX, PRESETS, Definition, RetryPolicy, policy_of, retry_at_us
from tests.machine.play import define


def policy(written: str) -> RetryPolicy:
    """The policy of node a in a graph in which this is written."""
    graph = define(f"{written}; a; start -> a -> exit").graph
    return policy_of(graph, graph.nodes["a"])


def delays_ms(found: RetryPolicy, jitter: float = 0.5) -> list[int]:
    """All pauses of a policy, in milliseconds."""
    delays: list[int] = []
    while (at_us := retry_at_us(found, retries_spent=len(delays), now_us=0, jitter=jitter)) is not None:
        delays.append(at_us // 1000)
    return delays


@pytest.mark.parametrize(
    ("written", "retries"),
    [
        ("", 0),
        ("default_max_retries=3", 3),
        ("default_max_retry=3", 3),
        ("default_max_retries=3; a [max_retries=1]", 1),
        ("default_max_retries=3; a [max_retries=0]", 0),
        ("retry_policy=standard", 4),
        ("retry_policy=none; default_max_retries=3", 0),
        ("retry_policy=none; a [retry_policy=patient]", 2),
        ("a [retry_policy=patient, max_retries=7]", 7),
        ("default_max_retries=3; a [prompt=p]", 3),
    ],
)
def test_how_often_a_node_is_tried_again(written: str, retries: int) -> None:
    """D34: the node's count, else its preset's, else the graph's; old name and new."""
    assert policy(written).retries_max == retries


@pytest.mark.parametrize(
    ("preset", "delays"),
    [
        ("none", []),
        ("standard", [200, 400, 800, 1600]),
        ("aggressive", [500, 1000, 2000, 4000]),
        ("linear", [500, 500]),
        ("patient", [2000, 6000]),
    ],
)
def test_how_patiently_the_presets_try_again(preset: str, delays: list[int]) -> None:
    """D35: constant and growing pauses."""
    assert delays_ms(policy(f"retry_policy={preset}")) == delays
    assert preset in PRESETS


def test_pauses_double_from_a_fifth_of_a_second_when_nothing_is_said() -> None:
    """S2-30."""
    assert delays_ms(policy("default_max_retries=3")) == [200, 400, 800]


def test_a_pause_never_grows_beyond_the_ceiling() -> None:
    delays = delays_ms(RetryPolicy(2_000, delay_s_first=2.0, factor=3.0))
    assert max(delays) == DELAY_S_MAX * 1000
    assert len(delays) == 2_000


@given(st.integers(0, 10), st.floats(0, 1, exclude_max=True), st.integers(0, 2**53))
def test_jitter_spreads_a_pause_by_half_to_either_side(spent: int, jitter: float, now_us: int) -> None:
    """D36: told the dice, between 0.5 and 1.5 times the plain pause."""
    found = RetryPolicy(11)
    plain_us = 200_000 * 2**spent
    at_us = retry_at_us(found, retries_spent=spent, now_us=now_us, jitter=jitter)
    assert at_us is not None
    capped_us = min(plain_us, 60_000_000)
    assert capped_us // 2 <= at_us - now_us < capped_us * 3 // 2 + 1
    assert retry_at_us(found, retries_spent=11, now_us=now_us, jitter=jitter) is None


def test_a_definition_remembers_its_policies() -> None:
    definition = Definition(define("a [max_retries=2]; start -> a -> exit").graph)
    node = definition.graph.nodes["a"]
    assert definition.retry_policy(node) is definition.retry_policy(node)
    assert definition.retry_policy(node).retries_max == 2

"""When to retry. The time and the dice are parameters."""

from __future__ import annotations

import msgspec

from onward.pipeline.graph import Graph, Node

PRESETS: dict[str, tuple[int, float, float]] = {
    "none": (0, 0.2, 2.0),
    "standard": (4, 0.2, 2.0),
    "aggressive": (4, 0.5, 2.0),
    "linear": (2, 0.5, 1.0),
    "patient": (2, 2.0, 3.0),
}
DELAY_S_MAX = 60.0


class RetryPolicy(msgspec.Struct, frozen=True):
    """So many additional attempts, with growing pauses between them."""

    retries_max: int
    delay_s_first: float = 0.2
    factor: float = 2.0
    delay_s_max: float = DELAY_S_MAX


def policy_of(graph: Graph, node: Node) -> RetryPolicy:
    """The node's own policy, else the graph's; `retry_policy` names a preset, `max_retries` its count."""
    name = node.text("retry_policy") or graph.text("retry_policy")
    preset_retries, first_s, factor = PRESETS.get(name, (None, 0.2, 2.0))
    written = node.max_retries
    if written is None:
        written = preset_retries if preset_retries is not None else graph.default_max_retries
    return RetryPolicy(written, first_s, factor)


def retry_at_us(policy: RetryPolicy, *, retries_spent: int, now_us: int, jitter: float) -> int | None:
    """When to try again, or None when the policy is spent. `jitter` is in [0, 1)."""
    if retries_spent >= policy.retries_max:
        return None
    # The exponent is bounded so that a thousand retries do not overflow a float.
    delay_s = min(policy.delay_s_first * policy.factor ** min(retries_spent, 64), policy.delay_s_max)
    return now_us + int(delay_s * (0.5 + jitter) * 1_000_000)

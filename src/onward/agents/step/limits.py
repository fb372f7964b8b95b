"""What a request may cost at most, and where it counts: reserved before it is sent."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from onward.agents.model.request import OUTPUT_TOKENS, ModelRequest
from onward.agents.model.stream import Usage
from onward.agents.prices import Prices, most_micro
from onward.agents.tokens import estimate_tokens
from onward.errors import LimitReached
from onward.handlers.port import StepContext
from onward.model.call import LimitHit, Reserved

ANSWER_TOKENS_MIN = 64
"""An answer with less room is not worth asking for."""
DAY_US = 86_400_000_000


def with_room(request: ModelRequest, reached: LimitReached) -> ModelRequest | None:
    """The request with the ceiling that a limit on tokens leaves for its answer; None if it is too low."""
    if reached.measure != "tokens":
        return None
    left = reached.limit - reached.spent - estimate_tokens(request)
    ceiling = request.max_tokens or OUTPUT_TOKENS
    return replace(request, max_tokens=left) if ANSWER_TOKENS_MIN <= left < ceiling else None


def hit_of(reached: LimitReached) -> LimitHit:
    """The limit that stops the step, as it is recorded."""
    return LimitHit(
        scope=reached.scope,
        measure=reached.measure,
        limit=reached.limit,
        spent=reached.spent,
        reserved=reached.reserved,
        wanted=reached.wanted,
    )


def end_of(scope: str, now_us: int) -> int | None:
    """When a scope's limit no longer counts: that of a day at its end."""
    return (now_us // DAY_US + 1) * DAY_US if scope.startswith("day/") else None


def reservation(step: StepContext, request: ModelRequest, prices: Prices, now_us: int) -> Reserved:
    """The scopes of a request, and its ceiling in tokens, money and calls."""
    usage = Usage(input=estimate_tokens(request), output=request.max_tokens or OUTPUT_TOKENS)
    price = prices.find(request.model)
    day = datetime.fromtimestamp(now_us / 1_000_000, UTC).date().isoformat()
    return Reserved(
        scopes=(*step.scopes, f"day/{day}"),
        tokens=usage.input + usage.output,
        cost_micro=0 if price is None else most_micro(usage, price),
        calls=1,
        is_priced=price is not None,
    )

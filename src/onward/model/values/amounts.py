"""Amounts: what calls cost, and what a limit is on: tokens, money in millionths of a dollar, and calls."""

from __future__ import annotations

from typing import NamedTuple

from onward.model.call import Reserved, Usage

MEASURES = ("tokens", "cost", "calls")
"""The names of what is limited, in the order of the fields of `Amounts`."""
WARN_PERCENT = 80


class Amounts(NamedTuple):
    """So many tokens, so much money, so many calls."""

    tokens: int = 0
    cost_micro: int = 0
    calls: int = 0

    def plus(self, other: Amounts) -> Amounts:
        """The sum of both."""
        return Amounts(
            self.tokens + other.tokens, self.cost_micro + other.cost_micro, self.calls + other.calls
        )

    def minus(self, other: Amounts) -> Amounts:
        """What is left of this without the other."""
        return Amounts(
            self.tokens - other.tokens, self.cost_micro - other.cost_micro, self.calls - other.calls
        )


NOTHING = Amounts()


def amounts_of(reserved: Reserved) -> Amounts:
    """What a call reserves in each of its scopes."""
    return Amounts(reserved.tokens, reserved.cost_micro, reserved.calls)


def used_amounts(usage: Usage | None, cost_micro: int | None, most: Amounts) -> Amounts:
    """What a call is charged for that ended by itself; `most` is what was reserved for it.

    Without `usage` the provider counted nothing: no tokens and no money, but a call was made. If only its
    price is not known, the money that was reserved counts.
    """
    if usage is None:
        return Amounts(0, cost_micro or 0, most.calls)
    return Amounts(usage.tokens, most.cost_micro if cost_micro is None else cost_micro, most.calls)

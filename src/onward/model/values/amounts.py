"""Amounts: what calls cost, and what a limit is on: tokens, money in millionths of a dollar, and calls."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from onward.errors import InvalidInput
from onward.model.call import LimitHit, Reserved, Usage
from onward.model.values.scopes import kind_of

MEASURES = ("tokens", "cost", "calls")
"""The names of what is limited, in the order of the fields of `Amounts`."""
WARN_PERCENT = 80
AMOUNT_MAX = 10**15
CHAT_TOKENS = 500_000
"""What a chat may spend in tokens, unless something else is said; a new database has it as a limit."""
CALLS_PER_CHAT_RUN = 30
"""How many calls a run of a chat may make, unless a limit is set for runs."""
MICRO = 1_000_000
_WHOLE = re.compile(r"[0-9][0-9_,]{0,20}")
_DOLLARS = re.compile(r"\$?[0-9][0-9_,]{0,12}(\.[0-9]{1,6})?")


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


def check_measure(text: str) -> str:
    """The measure that this text names."""
    if text not in MEASURES:
        raise InvalidInput(f"{text[:40]!r} is nothing that can be limited; write tokens, cost or calls.")
    return text


def read_amount(measure: str, text: str) -> int:
    """How much is meant: a whole number, or dollars for cost. 0 is no limit."""
    is_cost = check_measure(measure) == "cost"
    if not (_DOLLARS if is_cost else _WHOLE).fullmatch(text):
        what = "dollars, such as 2.50" if is_cost else "a whole number, such as 200000"
        raise InvalidInput(f"{text[:40]!r} cannot be a limit on {measure}; write {what}, or 0 for no limit.")
    number = Decimal(re.sub(r"[$_,]", "", text))
    amount = int(number * MICRO) if is_cost else int(number)
    if amount > AMOUNT_MAX:
        raise InvalidInput(f"a limit of {text[:40]} on {measure} is too large; write 0 for no limit.")
    return amount


def shown_amount(measure: str, amount: int) -> str:
    """An amount for people: `200,000`, or `$2.50`."""
    if measure != "cost":
        return f"{amount:,}"
    dollars = f"{Decimal(amount) / MICRO:,.6f}".rstrip("0")
    whole, _, cents = dollars.partition(".")
    return f"${whole}.{cents.ljust(2, '0')}"


def raise_argument(scope: str, measure: str, amount: int) -> str:
    """What `--raise` takes to raise a limit of a run: `run.tokens=200000`, `day.cost=2.50`."""
    typed = shown_amount(measure, amount).replace(",", "").lstrip("$")
    return f"{kind_of(scope)}.{measure}={typed}"


def leaves_more_room(hit: LimitHit, *, limit: int, spent: int) -> bool:
    """Whether a call that did not fit may fit by now; 0 is no limit."""
    return not limit or limit - spent > hit.limit - hit.spent


def raised_amount(hit: LimitHit, *, limit: int, spent: int, reserved: int) -> int:
    """A limit that leaves room for the call that did not fit, and more: at least twice the present one.

    It is rounded up to two digits, so that it is easy to read and to type.
    """
    least = max(2 * limit, spent + reserved + hit.wanted)
    step: int = 10 ** max(0, len(str(least)) - 2)
    return -(-least // step) * step

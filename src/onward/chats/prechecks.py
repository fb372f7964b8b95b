"""Before a run of a chat starts or is resumed: what its limits leave; pure.

In this order: the tokens of the chat, the cost of the day, the cost of the project. The first that leaves
nothing blocks; those that are nearly spent warn.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from onward.model.limits import MEASURES, WARN_PERCENT, day_of, kind_of, shown_amount
from onward.store.port.limits import Scope

CHECKED = (("chat", "tokens"), ("day", "cost"), ("project", "cost"))


class Checked(msgspec.Struct, frozen=True):
    """What the limits say: why nothing can begin, or what is nearly spent; a sentence each."""

    blocked: str = ""
    warnings: tuple[str, ...] = ()


def scopes_checked(chat: str, project: str, at_us: int) -> list[str]:
    """The scopes that are looked at, in the order of the checks."""
    return [f"chat/{chat}", f"day/{day_of(at_us)}", *([f"project/{project}"] if project else ())]


def precheck(scopes: Sequence[Scope]) -> Checked:
    """What the limits of these scopes leave."""
    warnings: list[str] = []
    for kind, measure in CHECKED:
        for scope in scopes:
            if kind_of(scope.id) != kind:
                continue
            at = MEASURES.index(measure)
            limit, spent = scope.limit[at], scope.spent[at]
            if limit and spent >= limit:
                return Checked(blocked=_blocked(scope.id, measure, spent, limit))
            if limit and spent * 100 >= limit * WARN_PERCENT:
                warnings.append(f"{_used(scope.id, measure, spent, limit)}.")
    return Checked(warnings=tuple(warnings))


def _used(scope: str, measure: str, spent: int, limit: int) -> str:
    unit = "" if measure == "cost" else f" {measure}"
    return f"{scope} has used {shown_amount(measure, spent)} of {shown_amount(measure, limit)}{unit}"


def _blocked(scope: str, measure: str, spent: int, limit: int) -> str:
    enough = shown_amount(measure, 2 * max(spent, limit)).replace(",", "").lstrip("$")
    return (
        f"{_used(scope, measure, spent, limit)}, so nothing was started; raise the limit with "
        f"`onward limits set {shlex.quote(scope)} {measure} {enough}`, then say it again."
    )

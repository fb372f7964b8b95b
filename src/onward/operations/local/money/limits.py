"""Limits and usage, from the tables of a store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import msgspec

from onward.clock import Clock
from onward.engine.control.limits import LimitChanges
from onward.engine.log.journal import Journal
from onward.model.values.amounts import CALLS_PER_CHAT_RUN, CHAT_TOKENS, MEASURES
from onward.model.values.scopes import DAY, KINDS, check_scope, day_of, kind_of
from onward.operations.replies.limits import (
    LimitChanged,
    LimitList,
    MeasureShown,
    ScopeShown,
    UsageList,
    UsageShown,
)
from onward.operations.requests.limits import GetUsage, ListLimits, ResetLimits, SetLimit
from onward.read.lookup import find_run
from onward.store.port.money.limits import Scope, UsageKind
from onward.store.port.store import Store

RUN = "run"
LISTED_MAX = 10_000


class LocalLimits(msgspec.Struct, frozen=True):
    """Looks at the limits of one store, and changes them."""

    store: Store
    clock: Clock

    async def list_limits(self, request: ListLimits) -> LimitList:
        """Every scope with a limit or spending."""
        (runs,) = await self.store.limits.read([RUN])
        return {
            "scopes": [_view(one) for one in await self.store.limits.list(limit=request.limit)],
            "chat_run_calls": CALLS_PER_CHAT_RUN if runs.own[MEASURES.index("calls")] is None else None,
        }

    async def set_limit(self, request: SetLimit) -> LimitChanged:
        """Set one limit; runs that it held try again."""
        return await self._change(request.scope, {request.measure: request.value}, request.by)

    async def reset_limits(self, request: ResetLimits) -> LimitChanged:
        """Forget the limits that were set for a scope. That of every chat is then what it was at first."""
        first = {"tokens": CHAT_TOKENS} if request.scope == "chat" else {}
        return await self._change(request.scope, {**dict.fromkeys(MEASURES), **first}, request.by)

    async def get_usage(self, request: GetUsage) -> UsageList:
        """What was spent."""
        found = await self.store.limits.usage(UsageKind(request.by), limit=request.limit)
        return {"by": request.by, "usage": [cast("UsageShown", msgspec.to_builtins(one)) for one in found]}

    async def _change(self, scope: str, changes: dict[str, int | None], by: str) -> LimitChanged:
        changing = LimitChanges(self.store, self.clock)
        changed, lifted = await changing.change(await self._scope(scope), changes, by=by)
        kept = await self._concerned(changed)
        apart = [one for one in kept if one.id != changed.id and _has_own(one, changes)]
        spent_up = [one for one in kept if one not in apart and _is_spent_up(one, changes)]
        return {
            "scope": _view(changed),
            "lifted": list(lifted),
            "spent_up": [_view(one) for one in spent_up],
            "apart": [_view(one) for one in apart],
        }

    async def _concerned(self, changed: Scope) -> Sequence[Scope]:
        """The scope, or all those of the kind that it is the default of, without the days that are over.

        Runs are left out: most of them have ended.
        """
        if changed.id not in KINDS:
            return [changed]
        if changed.id == RUN:
            return [one for one in await self._listed(RUN) if any(limit is not None for limit in one.own)]
        today = f"{DAY}/{day_of(self.clock.now_us())}"
        return [one for one in await self._listed(changed.id) if changed.id != DAY or one.id >= today]

    async def _listed(self, kind: str) -> Sequence[Scope]:
        listed = await self.store.limits.list(limit=LISTED_MAX)
        return [one for one in listed if kind_of(one.id) == kind and one.id != kind]

    async def _scope(self, text: str) -> str:
        """The scope that is meant. A run may be named in short; its calls may be charged to another."""
        scope = check_scope(text)
        if not scope.startswith("run/"):
            return scope
        found = await find_run(self.store.runs, scope.removeprefix("run/"))
        run = (await Journal(self.store.log, self.clock).load(found.row.id)).run
        return f"run/{run.charged_to or run.id}"


def _has_own(scope: Scope, changes: Collection[str]) -> bool:
    """Whether a scope has a limit of its own on one of these measures."""
    return any(own is not None and name in changes for name, own in zip(MEASURES, scope.own, strict=True))


def _is_spent_up(scope: Scope, changes: Collection[str]) -> bool:
    """Whether the limit on one of these measures leaves nothing."""
    figures = zip(MEASURES, scope.limit, scope.spent, strict=True)
    return any(name in changes and 0 < limit <= spent for name, limit, spent in figures)


def _view(scope: Scope) -> ScopeShown:
    figures = zip(scope.limit, scope.own, scope.spent, scope.reserved, strict=True)
    tokens, cost, calls = (
        MeasureShown(limit=limit or None, is_own=own is not None, spent=spent, reserved=reserved)
        for limit, own, spent, reserved in figures
    )
    return {
        "scope": scope.id,
        "kind": kind_of(scope.id),
        "tokens": tokens,
        "cost_micro": cost,
        "calls": calls,
        "warned": list(scope.warned),
    }

"""Limits and usage, from the tables of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec

from onward.clock import Clock
from onward.engine.control.limits import LimitChanges
from onward.engine.log.journal import Journal
from onward.model.values.amounts import MEASURES
from onward.model.values.scopes import check_scope, kind_of
from onward.operations.requests import GetUsage, ListLimits, ResetLimits, SetLimit
from onward.operations.spending import (
    LimitChanged,
    LimitList,
    MeasureShown,
    ScopeShown,
    UsageList,
    UsageShown,
)
from onward.read.lookup import find_run
from onward.store.port.money.limits import Scope, UsageKind
from onward.store.port.store import Store


@dataclass(frozen=True, slots=True)
class LocalLimits:
    """Looks at the limits of one store, and changes them."""

    store: Store
    clock: Clock

    async def list_limits(self, request: ListLimits) -> LimitList:
        """Every scope with a limit or spending."""
        return {"scopes": [_view(one) for one in await self.store.limits.list(limit=request.limit)]}

    async def set_limit(self, request: SetLimit) -> LimitChanged:
        """Set one limit; runs that it held try again."""
        return await self._change(request.scope, {request.measure: request.value}, request.by)

    async def reset_limits(self, request: ResetLimits) -> LimitChanged:
        """Forget the limits that were set for a scope."""
        return await self._change(request.scope, dict.fromkeys(MEASURES), request.by)

    async def get_usage(self, request: GetUsage) -> UsageList:
        """What was spent."""
        found = await self.store.limits.usage(UsageKind(request.by), limit=request.limit)
        return {"by": request.by, "usage": [cast("UsageShown", msgspec.to_builtins(one)) for one in found]}

    async def _change(self, scope: str, changes: dict[str, int | None], by: str) -> LimitChanged:
        changing = LimitChanges(self.store, self.clock)
        changed, lifted = await changing.change(await self._scope(scope), changes, by=by)
        return {"scope": _view(changed), "lifted": list(lifted)}

    async def _scope(self, text: str) -> str:
        """The scope that is meant. A run may be named in short; its calls may be charged to another."""
        scope = check_scope(text)
        if not scope.startswith("run/"):
            return scope
        found = await find_run(self.store.runs, scope.removeprefix("run/"))
        run = (await Journal(self.store.log, self.clock).load(found.row.id)).run
        return f"run/{run.charged_to or run.id}"


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

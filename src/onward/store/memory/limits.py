"""Limits in memory: what `Limits` promises, in as few words as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from onward.model.values.scopes import DAY, kind_of
from onward.store.limits.columns import changed_limit
from onward.store.limits.ledger import (
    Ledger,
    UsageKey,
    Used,
    keys_closed,
    note_warnings,
    scopes_opened,
    summed,
)
from onward.store.memory.state import Ownership, State
from onward.store.port.money.limits import (
    Reservation,
    ReservationState,
    Scope,
    Spent,
    UsageKind,
    Warned,
)
from onward.store.port.stored import Write

_PLACES = {UsageKind.RUN: "run_id"}


class MemoryLimits:
    """The limits of a database, as one process sees them."""

    def __init__(self, ownership: Ownership) -> None:
        self._state, self._ownership = ownership.state, ownership
        self._warnings: dict[str, list[Warned]] = {}

    async def read(self, scopes: Sequence[str]) -> Sequence[Scope]:
        return [_scope(self._state, id) for id in scopes]

    async def list(self, *, limit: int) -> Sequence[Scope]:
        found = sorted((_scope(self._state, id) for id in self._state.scopes), key=lambda scope: scope.id)
        found.sort(key=lambda scope: scope.id if kind_of(scope.id) == DAY else "", reverse=True)
        return sorted(found, key=lambda scope: (scope.id != kind_of(scope.id), kind_of(scope.id)))[:limit]

    async def change(self, scope: str, changes: Mapping[str, int | None]) -> Scope:
        self._state.scopes[scope] = changed_limit(_scope(self._state, scope), changes)
        return _scope(self._state, scope)

    async def usage(self, by: UsageKind, *, limit: int) -> Sequence[Spent]:
        sums: dict[str, Used] = {}
        for key, used in self._state.usage.items():
            what = getattr(key, _PLACES.get(by, by.value))
            sums[what] = Used(*map(sum, zip(sums.get(what, (0,) * len(used)), used, strict=True)))
        found = [Spent(what=what, **used._asdict()) for what, used in sums.items()]
        found.sort(key=lambda one: (-one.cost_micro, -one.tokens, one.what))
        if by is UsageKind.DAY:
            found.sort(key=lambda one: one.what, reverse=True)
        return found[:limit]

    async def reservations(self, run_id: str) -> Sequence[Reservation]:
        return [made for key, made in sorted(self._state.reservations.items()) if key.run_id == run_id]

    async def abandoned(self, scope: str) -> Sequence[str]:
        open_ = [
            made.run_id
            for made in self._state.reservations.values()
            if made.state is ReservationState.OPEN and scope in made.scopes
        ]
        return [id for id in sorted(set(open_)) if not self._is_alive(id)]

    def _is_alive(self, run_id: str) -> bool:
        holder = self._ownership.holder_of(self._state.runs[run_id])
        return holder is not None and holder.is_alive

    def take_warnings(self, run_id: str) -> Sequence[Warned]:
        return self._warnings.pop(run_id, ())

    def charge(self, write: Write) -> None:
        """Reserve and settle for the calls of a write, or raise the refusal of one of them."""
        state, keys = self._state, keys_closed(write)
        open_ = {key: state.reservations[key] for key in keys if key in state.reservations}
        settled = {id for made in open_.values() for id in made.scopes}
        there = scopes_opened(write) | settled & state.scopes.keys()
        ledger = Ledger({id: _scope(state, id) for id in there}, open_)
        refusal = ledger.enter(write)
        if refusal is not None:
            raise refusal
        state.scopes.update(ledger.changed)
        state.reservations.update(ledger.written)
        state.usage.update(summed([*_items(state, ledger.used), *ledger.used]))
        note_warnings(self._warnings, ledger)


def _items(state: State, used: Sequence[tuple[UsageKey, Used]]) -> Sequence[tuple[UsageKey, Used]]:
    return [(key, state.usage[key]) for key in {key for key, _ in used} if key in state.usage]


def _scope(state: State, id: str) -> Scope:
    default = state.scopes.get(kind_of(id))
    found = state.scopes.get(id, Scope(id=id))
    return found if default is None else replace(found, default=default.own)


def forget_limits(state: State, run_id: str) -> None:
    """What goes with a run: its reservations and its own scope, and no spending of others."""
    state.scopes.pop(f"run/{run_id}", None)
    for key in [key for key in state.reservations if key.run_id == run_id]:
        del state.reservations[key]

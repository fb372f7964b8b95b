"""Changing limits: the scopes of a run, and holds that a raised limit lifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from onward.clock import Clock, SystemIds
from onward.engine.journal import Journal
from onward.errors import HistoryCorrupt, InvalidInput, Refused, RunNotFound
from onward.machine.decide.calls import decide_lift, is_held_by_limit
from onward.machine.reasons import is_at_limit
from onward.model.call import LimitHit
from onward.model.ids import display_id
from onward.model.limits import (
    MEASURES,
    VISITS,
    kind_of,
    leaves_more_room,
    raise_argument,
    raised_amount,
    scopes_of,
    shown_amount,
)
from onward.model.run import Run
from onward.store.port.limits import Limits, Scope
from onward.store.port.store import Store


def run_scopes(run: Run, at_us: int) -> tuple[str, ...]:
    """The scopes that a call of this run counts in, if it begins now."""
    return scopes_of(root=run.charged_to or run.id, chat=run.chat, project=run.project, at_us=at_us)


class LimitChanges(msgspec.Struct, frozen=True):
    """Changes limits, and lets the runs that they held try again."""

    store: Store
    clock: Clock

    async def change(
        self, scope: str, changes: Mapping[str, int | None], *, by: str
    ) -> tuple[Scope, Sequence[str]]:
        """Set limits of a scope by their measures; returns it, and the runs whose holds that lifts."""
        changed = await self.store.limits.change(scope, changes)
        return changed, await self._lift(scope, by)

    async def raise_for(self, run: Run, raises: Sequence[tuple[str, str, int]], *, by: str) -> None:
        """Raise limits of the scopes that a run counts in: each is the scope or its kind, a measure, a limit.

        All are checked before the first is changed. How often nodes may be visited is in the run's log.
        """
        there = run_scopes(run, self.clock.now_us())
        meant = [
            (_scope_of(run, there, scope), measure, limit)
            for scope, measure, limit in raises
            if measure != VISITS
        ]
        for scope, measure, limit in meant:
            (now,) = await self.store.limits.read([scope])
            _check_raised(now, measure, limit)
        for scope, measure, limit in meant:
            await self.change(scope, {measure: limit}, by=by)

    async def _lift(self, scope: str, by: str) -> Sequence[str]:
        journal, lifted = Journal(self.store.log, self.clock), list[str]()
        for listed in await self.store.runs.held():
            try:
                known = await journal.load(listed.row.id)
                run = known.run
                if not is_held_by_limit(run) or not self._is_of(scope, run):
                    continue
                folded = await journal.control(
                    run.id,
                    lambda found: decide_lift(found.run, why=f"a limit of {scope} was changed", by=by),
                    append_id=SystemIds().unique(),
                    known=known,
                )
            except (RunNotFound, HistoryCorrupt):
                continue  # it was deleted meanwhile, or cannot be read: the limit counts for the others
            if folded.run.head > run.head:
                lifted.append(run.id)
        return lifted

    def _is_of(self, scope: str, run: Run) -> bool:
        scopes = run_scopes(run, self.clock.now_us())
        held_in = [opened.limit.scope for opened in run.open_steps.values() if opened.limit is not None]
        return any(scope in (one, kind_of(one)) for one in (*scopes, *held_in))


def _scope_of(run: Run, there: Sequence[str], wanted: str) -> str:
    """The scope of the run that is meant by its kind or by its name; a run also has a display id."""
    kind = kind_of(wanted)
    scope = next((one for one in there if kind_of(one) == kind), None)
    if scope is None:
        kinds = ", ".join(sorted(map(kind_of, there)))
        raise InvalidInput(f"run {run.id} has no {kind}, so it has no such limit; it has {kinds}.")
    if wanted not in (kind, scope, f"run/{run.id}", f"run/{display_id(run.id)}"):
        raise InvalidInput(
            f"the calls of run {run.id} count in {scope}, not in {wanted}; raise {kind}, or change {wanted} "
            f"with `onward limits set {wanted}`."
        )
    return scope


def _check_raised(now: Scope, measure: str, limit: int) -> None:
    current = now.limit[MEASURES.index(measure)]
    if limit and not current:
        raise InvalidInput(
            f"there is no limit of {now.id} on {measure}, so there is nothing to raise; to set one, use "
            f"`onward limits set`."
        )
    if limit and current and limit < current:
        raise InvalidInput(
            f"the limit of {now.id} on {measure} is already {shown_amount(measure, current)}; to lower it, "
            "use `onward limits set`."
        )


async def has_room(limits: Limits, hits: Sequence[LimitHit]) -> bool:
    """Whether a limit leaves more room than it did when it refused a call."""
    for hit in hits:
        (now,) = await limits.read([hit.scope])
        at = MEASURES.index(hit.measure)
        if leaves_more_room(hit, limit=now.limit[at], spent=now.spent[at]):
            return True
    return False


class StillHeld(msgspec.Struct, frozen=True):
    """A limit that stopped a run and leaves no more room than it did then; `enough` would leave some."""

    step: str
    scope: Scope
    measure: str
    spent: int
    limit: int
    enough: int

    @property
    def argument(self) -> str:
        """What `--raise` takes to continue the run."""
        return raise_argument(self.scope.id, self.measure, self.enough)


async def still_held(store: Store, run: Run, now_us: int) -> StillHeld | None:
    """The limit that would stop a run again at the same call; None if nothing is known to.

    A day that is over holds nothing: the call would count in another.
    """
    scopes = run_scopes(run, now_us)
    for opened in run.open_steps.values():
        hit = opened.limit
        if hit is None or not is_at_limit(run.reason) or hit.scope not in scopes:
            continue
        (now,) = await store.limits.read([hit.scope])
        at = MEASURES.index(hit.measure)
        spent, limit = now.spent[at], now.limit[at]
        if not leaves_more_room(hit, limit=limit, spent=spent):
            enough = raised_amount(hit, limit=limit, spent=spent, reserved=now.reserved[at])
            return StillHeld(opened.step, now, hit.measure, spent, limit, enough)
    return None


async def check_limits(store: Store, run: Run, now_us: int, *, repeats: bool) -> None:
    """Refuse to resume a run that would stop at the same limit again.

    If it `repeats` the call that did not fit, there must be more room than there was. Else another call is
    next, which may need less: something must be left.
    """
    held = await still_held(store, run, now_us)
    if held is None or (not repeats and held.spent < held.limit):
        return
    measure, unit = held.measure, "" if held.measure == "cost" else f" {held.measure}"
    spent, limit = (shown_amount(measure, amount) for amount in (held.spent, held.limit))
    raise Refused(
        "limit_exceeded",
        f"{held.scope.id} has spent {spent} of {limit}{unit}, which is not enough for the next call of step "
        f"{held.step}; raise the limit and resume with `onward resume {run.id} --raise {held.argument}`.",
        details={"scope": held.scope.id, "measure": measure, "used": held.spent, "limit": held.limit},
    )

"""The ledger of one transaction: all scopes are locked, then judged, then charged.

Settlements go by the scopes that the reservation stored. A call that has no reservation here (it belongs to
the parent of a fork, or to a log that was imported) settles nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from onward.errors import LimitReached, OnwardError, Refused
from onward.model.call import Reserved, Usage
from onward.model.row import CallClosed, CallOpened
from onward.model.values.amounts import MEASURES, Amounts, amounts_of, shown_amount, used_amounts
from onward.model.values.scopes import DAY, day_of, part_of
from onward.store.port.money.limits import Reservation, ReservationState, Scope, Warned
from onward.store.port.stored import Write

NO_USAGE = Usage()


class ReservationKey(NamedTuple):
    """Which call a reservation is of. It never recurs."""

    run_id: str
    step: str
    call: str
    number: int


class UsageKey(NamedTuple):
    """What usage is counted by."""

    day: str
    project: str
    chat: str
    run_id: str
    pipeline: str
    model: str


class Used(NamedTuple):
    """What is added to a row of usage."""

    input: int
    output: int
    cached: int
    tokens: int
    cost_micro: int
    calls: int
    estimated: int


def charges(write: Write) -> bool:
    """Whether a write reserves or settles anything."""
    return any(row.is_reserved for row in write.calls) if write.calls else False


def only_settles(write: Write) -> bool:
    """Whether a write leaves more room than there was: it is judged before those that need room."""
    return not any(isinstance(row, CallOpened) and row.is_reserved for row in write.calls)


def scopes_opened(write: Write) -> set[str]:
    """The scopes that the calls of a write reserve in."""
    return {
        scope
        for row in write.calls
        if isinstance(row, CallOpened) and row.reserved is not None
        for scope in row.reserved.scopes
    }


def keys_closed(write: Write) -> list[ReservationKey]:
    """The calls with a reservation that a write ends."""
    return [
        ReservationKey(write.run_id, row.step, row.call, row.number)
        for row in write.calls
        if isinstance(row, CallClosed) and row.is_reserved
    ]


def key_of(reservation: Reservation) -> ReservationKey:
    """Which call a reservation is of."""
    return ReservationKey(reservation.run_id, reservation.step, reservation.call, reservation.number)


class Ledger(msgspec.Struct):
    """Locked scopes and open reservations, and what becomes of them."""

    scopes: dict[str, Scope]
    open: dict[ReservationKey, Reservation]
    changed: dict[str, Scope] = msgspec.field(default_factory=dict)
    written: dict[ReservationKey, Reservation] = msgspec.field(default_factory=dict)
    used: list[tuple[UsageKey, Used]] = msgspec.field(default_factory=list)
    warned: list[tuple[str, Warned]] = msgspec.field(default_factory=list)

    def enter(self, write: Write) -> OnwardError | None:
        """Charge the calls of a write, or say why one of them may not begin; then nothing changes."""
        entry = _Entry(self, write)
        for row in write.calls:
            if isinstance(row, CallClosed):
                entry.settle(row)
            elif row.reserved is not None:
                refusal = entry.reserve(row, row.reserved)
                if refusal is not None:
                    return refusal
        self.changed |= entry.scopes
        self.scopes |= entry.scopes
        self.written |= entry.reservations
        self.used += entry.used
        self.warned += [(write.run_id, warned) for warned in entry.warned]
        return None


class _Entry(msgspec.Struct):
    """One write, tried on a copy of what it touches."""

    ledger: Ledger
    write: Write
    scopes: dict[str, Scope] = msgspec.field(default_factory=dict)
    reservations: dict[ReservationKey, Reservation] = msgspec.field(default_factory=dict)
    used: list[tuple[UsageKey, Used]] = msgspec.field(default_factory=list)
    warned: list[Warned] = msgspec.field(default_factory=list)

    def reserve(self, row: CallOpened, reserved: Reserved) -> OnwardError | None:
        wanted, found = amounts_of(reserved), [self._scope(id) for id in sorted(set(reserved.scopes))]
        refusals = [judge(scope, wanted, is_priced=reserved.is_priced) for scope in found]
        if any(refusals):
            return min(filter(None, refusals), key=_may_pass)
        for scope in found:
            self.scopes[scope.id] = replace(scope, reserved=scope.reserved.plus(wanted))
        made = opened(self.write, row, tuple(scope.id for scope in found), wanted)
        self.reservations[key_of(made)] = made
        return None

    def settle(self, row: CallClosed) -> None:
        key = ReservationKey(self.write.run_id, row.step, row.call, row.number)
        found = self.reservations.get(key) or self.ledger.written.get(key) or self.ledger.open.get(key)
        if found is None or found.state is ReservationState.SETTLED:
            return
        charged = charged_for(row, found)
        self.reservations[key] = replace(
            found, state=ReservationState.SETTLED, charged=charged, is_estimated=row.is_unknown
        )
        for id in found.scopes:
            scope = self._find(id)
            if scope is not None:  # else it went with its run
                self._charge(scope, found.reserved, charged)
        self.used.append(usage_of(self.write, row, found))

    def _charge(self, scope: Scope, reserved: Amounts, charged: Amounts) -> None:
        scope = replace(scope, reserved=scope.reserved.minus(reserved), spent=scope.spent.plus(charged))
        said = [measure for measure in scope.nearly_spent if measure not in scope.warned]
        if said:
            figures = dict(zip(MEASURES, zip(scope.limit, scope.spent, strict=True), strict=True))
            self.warned += [Warned(scope.id, measure, *figures[measure]) for measure in said]
            scope = replace(scope, warned=(*scope.warned, *said))
        self.scopes[scope.id] = scope

    def _find(self, id: str) -> Scope | None:
        return self.scopes.get(id) or self.ledger.scopes.get(id)

    def _scope(self, id: str) -> Scope:
        return self._find(id) or Scope(id=id)


def opened(write: Write, row: CallOpened, scopes: tuple[str, ...], wanted: Amounts) -> Reservation:
    """The reservation of a call that begins. `scopes` are sorted, and each is there once."""
    return Reservation(
        run_id=write.run_id,
        step=row.step,
        call=row.call,
        number=row.number,
        token=write.records[-1].token,
        scopes=scopes,
        model=row.model,
        reserved=wanted,
    )


def charged_for(row: CallClosed, found: Reservation) -> Amounts:
    """What a call is charged for, now that it has ended."""
    most = found.reserved
    return most if row.is_unknown else used_amounts(row.usage, row.cost_micro, most)


def usage_of(write: Write, row: CallClosed, found: Reservation) -> tuple[UsageKey, Used]:
    """Which row of usage a call is added to that has ended, and what."""
    usage, charged = row.usage or NO_USAGE, charged_for(row, found)
    key = UsageKey(
        part_of(found.scopes, DAY) or day_of(write.at_us),
        part_of(found.scopes, "project"),
        part_of(found.scopes, "chat"),
        write.run_id,
        write.pipeline,
        row.model or found.model,
    )
    return key, Used(usage.input, usage.output, usage.cached, *charged, int(row.is_unknown))


def judge(scope: Scope, wanted: Amounts, *, is_priced: bool = True) -> OnwardError | None:
    """Why a call may not begin that may cost so much; None if it may."""
    figures = zip(MEASURES, scope.limit, scope.spent, scope.reserved, wanted, strict=True)
    for measure, limit, spent, reserved, needed in figures:
        if not limit:
            continue
        if measure == "cost" and not is_priced:
            return _unpriced(scope.id)
        if spent + reserved + needed > limit:
            return LimitReached(
                scope.id,
                measure,
                limit=limit,
                spent=spent,
                reserved=reserved,
                wanted=needed,
                fits_spent=spent + needed <= limit,
                says=_reached(scope.id, measure, limit, spent, reserved, needed),
            )
    return None


def _reached(scope: str, measure: str, *figures: int) -> str:
    limit, spent, reserved, needed = (shown_amount(measure, figure) for figure in figures)
    return (
        f"the limit of {scope} on {measure} is {limit}: {spent} spent, {reserved} reserved, "
        f"and the next call may need {needed}."
    )


def _may_pass(refusal: OnwardError) -> bool:
    return isinstance(refusal, LimitReached) and refusal.fits_spent


def _unpriced(scope: str) -> Refused:
    return Refused(
        "price_unknown",
        f"{scope} has a limit on cost, and the price of the model is not known; write it into onward.toml "
        f"([prices]), or lift the limit with `onward limits set {scope} cost 0`.",
        details={"scope": scope},
    )


def summed(used: Iterable[tuple[UsageKey, Used]]) -> Mapping[UsageKey, Used]:
    """What is added to each row of usage."""
    sums: dict[UsageKey, Used] = {}
    for key, more in used:
        there = sums.get(key)
        sums[key] = more if there is None else Used(*map(sum, zip(there, more, strict=True)))
    return sums


def note_warnings(warnings: dict[str, list[Warned]], ledger: Ledger) -> None:
    """Keep what is to be warned of, until the run's holder asks for it."""
    for run_id, warned in ledger.warned:
        there = warnings.setdefault(run_id, [])
        if warned not in there:
            there.append(warned)

"""Judge and charge calls, for every store alike: pure, over scopes that the store has locked.

A `Ledger` is that of one transaction: all scopes are locked, then judged, then charged. Settlements go by the
scopes that the reservation stored. A call that has no reservation here (it belongs to the parent of a fork,
or to a log that was imported) settles nothing.

`KnownReservations` are those that this process made: what settles one need not be read again. Whether one is
still open is known only in the database: another process may have settled it.

At the end are scopes, reservations and usage as columns and back, for every SQL database alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from onward.errors import LimitReached, OnwardError, Refused, StoreCorrupt
from onward.model.call import Reserved, Usage
from onward.model.ids import called
from onward.model.limits import (
    DAY,
    MEASURES,
    Amounts,
    amounts_of,
    bounded_sum,
    day_of,
    kind_of,
    part_of,
    shown_amount,
    used_amounts,
)
from onward.model.row import CallClosed, CallOpened
from onward.store.codec import content_hash
from onward.store.port.limits import Limit, Reservation, ReservationState, Scope, Spent, UsageKind, Warned
from onward.store.port.log import Write
from onward.store.rows import IsAlive

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


class AddedUsage(NamedTuple):
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
    used: list[tuple[UsageKey, AddedUsage]] = msgspec.field(default_factory=list)
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
    used: list[tuple[UsageKey, AddedUsage]] = msgspec.field(default_factory=list)
    warned: list[Warned] = msgspec.field(default_factory=list)

    def reserve(self, row: CallOpened, reserved: Reserved) -> OnwardError | None:
        wanted, found = amounts_of(reserved), [self._scope(id) for id in sorted(set(reserved.scopes))]
        refusals = [judge(scope, wanted, is_priced=reserved.is_priced) for scope in found]
        if any(refusals):
            return min(filter(None, refusals), key=_may_pass)
        for scope in found:
            self.scopes[scope.id] = replace(scope, reserved=scope.reserved.plus(wanted))
        made = opened_reservation(self.write, row, tuple(scope.id for scope in found), wanted)
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


def opened_reservation(
    write: Write, row: CallOpened, scopes: tuple[str, ...], wanted: Amounts
) -> Reservation:
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


def usage_of(write: Write, row: CallClosed, found: Reservation) -> tuple[UsageKey, AddedUsage]:
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
    return key, AddedUsage(usage.input, usage.output, usage.cached, *charged, int(row.is_unknown))


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
    kind, _, name = scope.partition("/")
    whose = f"{kind}/{called(name)}" if kind == "run" else scope
    return (
        f"the limit of {whose} on {measure} is {limit}: {spent} spent, {reserved} reserved, "
        f"and the next call may need {needed}."
    )


def _may_pass(refusal: OnwardError) -> bool:
    return isinstance(refusal, LimitReached) and refusal.fits_spent


def _unpriced(scope: str) -> Refused:
    return Refused(
        "price_unknown",
        f"{scope} has a limit on cost, and the price of the model is not known; write it into onward.toml "
        f"([prices]), or remove the limit with `onward limits set {scope} cost 0`.",
        details={"scope": scope},
    )


def summed_usage(used: Iterable[tuple[UsageKey, AddedUsage]]) -> Mapping[UsageKey, AddedUsage]:
    """What is added to each row of usage."""
    sums: dict[UsageKey, AddedUsage] = {}
    for key, more in used:
        there = sums.get(key)
        sums[key] = more if there is None else AddedUsage(*map(bounded_sum, there, more))
    return sums


def note_warnings(warnings: dict[str, list[Warned]], ledger: Ledger) -> None:
    """Keep what is to be warned of, until the run's holder asks for it."""
    for run_id, warned in ledger.warned:
        there = warnings.setdefault(run_id, [])
        if warned not in there:
            there.append(warned)


KNOWN_MAX = 10_000


class KnownReservations(msgspec.Struct):
    """Reservations by their calls."""

    open: dict[ReservationKey, Reservation] = msgspec.field(default_factory=dict)

    def begun(self, key: ReservationKey, made: Reservation) -> None:
        """A call has begun."""
        if len(self.open) >= KNOWN_MAX:
            self.open.clear()
        self.open[key] = made

    def ended(self, key: ReservationKey) -> None:
        """A call has ended."""
        self.open.pop(key, None)

    def note(self, ledger: Ledger) -> None:
        """A ledger was written."""
        for key, made in ledger.written.items():
            if made.state is ReservationState.SETTLED:
                self.ended(key)
            else:
                self.begun(key, made)


T = TypeVar("T")
_SCOPE_SEPARATOR = "\n"
_AMOUNT_COLUMNS = ("tokens", "cost_micro", "calls")


def scope_of(columns: Sequence[Any]) -> Scope:
    """A scope from its columns."""
    id, warned = columns[0], columns[13]
    return _converted(
        Scope,
        id,
        id=id,
        own=tuple(columns[1:4]),
        default=tuple(columns[4:7]),
        spent=Amounts(*columns[7:10]),
        reserved=Amounts(*columns[10:13]),
        warned=tuple(str(warned).split()),
    )


def reservation_of(columns: Sequence[Any]) -> Reservation:
    """A reservation from its columns."""
    run_id, step, call, number, token, scopes, model, *rest = columns
    return _converted(
        Reservation,
        f"{run_id}/{step}/{call}",
        run_id=run_id,
        step=step,
        call=call,
        number=number,
        token=token,
        scopes=tuple(scopes.split(_SCOPE_SEPARATOR)),
        model=model,
        reserved=Amounts(*rest[0:3]),
        state=rest[3],
        charged=Amounts(*rest[4:7]),
        is_estimated=bool(rest[7]),
    )


def spent_of(columns: Sequence[Any]) -> Spent:
    """A sum of usage from its columns."""
    return _converted(Spent, str(columns[0]), **dict(zip(Spent.__struct_fields__, columns, strict=True)))


def _converted(kind: type[T], name: str, **fields: Any) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the row of {name!r} in the tables of limits is damaged: {error}.") from None


def call_hash(key: ReservationKey) -> str:
    """What a reservation is found by; the name of a step has no limit, and an index has one."""
    return content_hash(_with_lengths(key.step, key.call, str(key.number)))


def _with_lengths(*parts: str) -> bytes:
    return b"".join([b"%d:%b" % (len(part), part) for part in map(str.encode, parts)])


def charge_parameters(scope: Scope) -> dict[str, Any]:
    """The columns of a scope that calls change."""
    return {
        "id": scope.id,
        **_amount_columns("spent", scope.spent),
        **_amount_columns("reserved", scope.reserved),
        "warned": " ".join(scope.warned),
    }


def limit_parameters(scope: Scope) -> dict[str, Any]:
    """The columns of a scope that people change."""
    return {"id": scope.id, **_amount_columns("max", scope.own), "warned": " ".join(scope.warned)}


def new_scope_parameters(scope: str) -> dict[str, Any]:
    """The columns of a scope in which nothing was spent."""
    return {"id": scope, "kind": kind_of(scope)}


def reservation_parameters(reservation: Reservation) -> dict[str, Any]:
    """The columns of a reservation."""
    return {
        "run_id": reservation.run_id,
        "call_hash": call_hash(key_of(reservation)),
        "step": reservation.step,
        "call": reservation.call,
        "number": reservation.number,
        "token": reservation.token,
        "scopes": joined_scopes(reservation.scopes),
        "model": reservation.model,
        **_amount_columns("reserved", reservation.reserved),
        "state": reservation.state.value,
        **_amount_columns("charged", reservation.charged),
        "is_estimated": int(reservation.is_estimated),
    }


def usage_parameters(key: UsageKey, used: AddedUsage) -> dict[str, Any]:
    """The columns of usage, and what is added to them."""
    return {"key_hash": usage_hash(key), **key._asdict(), **used._asdict()}


def usage_hash(key: UsageKey) -> str:
    """What a row of usage is found by; the six parts of its key have no limit, and an index has one."""
    return content_hash(_with_lengths(*key))


def joined_scopes(scopes: Sequence[str]) -> str:
    """The scopes of a reservation in one column."""
    return _SCOPE_SEPARATOR.join(scopes)


def _amount_columns(prefix: str, values: Sequence[int | None]) -> dict[str, int | None]:
    return {f"{prefix}_{name}": value for name, value in zip(_AMOUNT_COLUMNS, values, strict=True)}


def changed_limit(scope: Scope, changes: Mapping[str, int | None]) -> Scope:
    """A scope with other limits; what was said of a limit that changes may be said again."""
    own: Limit = tuple(  # type: ignore[assignment]  # as many as there are measures
        changes.get(measure, value) for measure, value in zip(MEASURES, scope.own, strict=True)
    )
    warned = tuple(measure for measure in scope.warned if measure not in changes)
    return msgspec.structs.replace(scope, own=own, warned=warned)


def abandoned_runs(found: Sequence[Sequence[Any]], scope: str, is_alive: IsAlive) -> Sequence[str]:
    """The runs among the holders of open reservations that are dead, and in the way in this scope."""
    runs = {
        run_id
        for run_id, scopes, owner, _, is_expired in found
        if scope in scopes.split(_SCOPE_SEPARATOR)
        and (owner is None or not is_alive(owner, bool(is_expired)))
    }
    return sorted(runs)


def usage_column(by: UsageKind) -> str:
    """The column that usage is put together by."""
    return "run_id" if by is UsageKind.RUN else by.value

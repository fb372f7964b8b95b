"""Scopes, reservations and usage to columns and back, for every SQL database alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from onward.errors import StoreCorrupt
from onward.model.values.amounts import MEASURES, Amounts
from onward.model.values.scopes import kind_of
from onward.store.codec import content_hash
from onward.store.limits.ledger import ReservationKey, UsageKey, Used, key_of
from onward.store.port.money.limits import Limit, Reservation, Scope, Spent, UsageKind
from onward.store.rows import IsAlive

T = TypeVar("T")
_SEPARATOR = "\n"
_COLUMNS = ("tokens", "cost_micro", "calls")


def scope_of(columns: Sequence[Any]) -> Scope:
    """A scope from its columns."""
    id, warned = columns[0], columns[13]
    return _sound(
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
    return _sound(
        Reservation,
        f"{run_id}/{step}/{call}",
        run_id=run_id,
        step=step,
        call=call,
        number=number,
        token=token,
        scopes=tuple(scopes.split(_SEPARATOR)),
        model=model,
        reserved=Amounts(*rest[0:3]),
        state=rest[3],
        charged=Amounts(*rest[4:7]),
        is_estimated=bool(rest[7]),
    )


def spent_of(columns: Sequence[Any]) -> Spent:
    """A sum of usage from its columns."""
    return _sound(Spent, str(columns[0]), **dict(zip(Spent.__struct_fields__, columns, strict=True)))


def _sound(kind: type[T], name: str, **fields: Any) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the row of {name!r} in the tables of limits is damaged: {error}.") from None


def call_hash(key: ReservationKey) -> str:
    """What a reservation is found by; the name of a step has no limit, and an index has one."""
    return content_hash(_joined(key.step, key.call, str(key.number)))


def _joined(*parts: str) -> bytes:
    return b"".join([b"%d:%b" % (len(part), part) for part in map(str.encode, parts)])


def charge_parameters(scope: Scope) -> dict[str, Any]:
    """The columns of a scope that calls change."""
    return {
        "id": scope.id,
        **_named("spent", scope.spent),
        **_named("reserved", scope.reserved),
        "warned": " ".join(scope.warned),
    }


def limit_parameters(scope: Scope) -> dict[str, Any]:
    """The columns of a scope that people change."""
    return {"id": scope.id, **_named("max", scope.own), "warned": " ".join(scope.warned)}


def make_parameters(scope: str) -> dict[str, Any]:
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
        **_named("reserved", reservation.reserved),
        "state": reservation.state.value,
        **_named("charged", reservation.charged),
        "is_estimated": int(reservation.is_estimated),
    }


def usage_parameters(key: UsageKey, used: Used) -> dict[str, Any]:
    """The columns of usage, and what is added to them."""
    return {"key_hash": usage_hash(key), **key._asdict(), **used._asdict()}


def usage_hash(key: UsageKey) -> str:
    """What a row of usage is found by; the six parts of its key have no limit, and an index has one."""
    return content_hash(_joined(*key))


def joined_scopes(scopes: Sequence[str]) -> str:
    """The scopes of a reservation in one column."""
    return _SEPARATOR.join(scopes)


def _named(prefix: str, values: Sequence[int | None]) -> dict[str, int | None]:
    return {f"{prefix}_{name}": value for name, value in zip(_COLUMNS, values, strict=True)}


def changed_limit(scope: Scope, changes: Mapping[str, int | None]) -> Scope:
    """A scope with other limits; what was said of a limit that changes may be said again."""
    own: Limit = tuple(  # type: ignore[assignment]  # as many as there are measures
        changes.get(measure, value) for measure, value in zip(MEASURES, scope.own, strict=True)
    )
    warned = tuple(measure for measure in scope.warned if measure not in changes)
    return msgspec.structs.replace(scope, own=own, warned=warned)


def abandoned(found: Sequence[Sequence[Any]], scope: str, is_alive: IsAlive) -> Sequence[str]:
    """The runs among the holders of open reservations that are dead, and in the way in this scope."""
    runs = {
        run_id
        for run_id, scopes, owner, _, is_expired in found
        if scope in scopes.split(_SEPARATOR) and (owner is None or not is_alive(owner, bool(is_expired)))
    }
    return sorted(runs)


def usage_column(by: UsageKind) -> str:
    """The column that usage is put together by."""
    return "run_id" if by is UsageKind.RUN else by.value

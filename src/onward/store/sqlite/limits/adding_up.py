"""A call that begins or ends alone, where charging it is no more than adding up.

Each of its scopes is judged by the statement that charges it. Whatever is more (a limit that has no room or
is nearly spent, a scope without a row) changes nothing in the end, and is left to the ledger.
"""

from __future__ import annotations

from functools import lru_cache

import apsw
import msgspec

from onward.model.call import Reserved
from onward.model.row import CallClosed, CallOpened
from onward.model.values.amounts import WARN_PERCENT, amounts_of
from onward.store.limits import columns
from onward.store.limits.ledger import ReservationKey, UsageKey, charged_for, key_of, opened, usage_of
from onward.store.limits.remembered import Remembered
from onward.store.port.money.limits import Reservation
from onward.store.port.stored import Write
from onward.store.sqlite.statements import QUERIES, compact

# Values are given in the order in which a statement first names them: looking names up takes longer.
_RESERVE, _UNRESERVE = compact(QUERIES["scope_reserve"]), compact(QUERIES["scope_unreserve"])
_BEGIN, _END = compact(QUERIES["reservation_begin"]), compact(QUERIES["reservation_end"])
_SETTLE, _UNSETTLE = compact(QUERIES["scope_settle"]), compact(QUERIES["scope_unsettle"])
_REOPEN, _ADD = compact(QUERIES["reservation_reopen"]), compact(QUERIES["usage_add"])


class AddingUp(msgspec.Struct):
    """The calls of one process that are charged so."""

    known: Remembered = msgspec.field(default_factory=Remembered)

    def charge(self, db: apsw.Connection, write: Write) -> bool:
        """Charge the call of a write that will be made. False: it is more than adding up; nothing is done."""
        if len(write.calls) != 1:
            return False
        (row,) = write.calls
        if isinstance(row, CallClosed):
            found = self.known.open.get(ReservationKey(write.run_id, row.step, row.call, row.number))
            return found is not None and self._settle(db, write, row, found)
        return row.reserved is not None and self._reserve(db, write, row, row.reserved)

    def _reserve(self, db: apsw.Connection, write: Write, row: CallOpened, reserved: Reserved) -> bool:
        scopes, wanted = _sorted(reserved.scopes), amounts_of(reserved)
        for number, id in enumerate(scopes):
            db.execute(_RESERVE, (*wanted, id, reserved.is_priced))
            if not db.changes():
                for charged in scopes[:number]:
                    db.execute(_UNRESERVE, (*wanted, charged))
                return False
        made = opened(write, row, scopes, wanted)
        key, joined = key_of(made), columns.joined_scopes(scopes)
        named = (row.step, row.call, row.number, made.token, joined, row.model)
        db.execute(_BEGIN, (write.run_id, columns.call_hash(key), *named, *wanted))
        self.known.begun(key, made)
        return True

    def _settle(self, db: apsw.Connection, write: Write, row: CallClosed, found: Reservation) -> bool:
        key, charged = key_of(found), charged_for(row, found)
        place, moved = (write.run_id, columns.call_hash(key)), (*charged, *found.reserved)
        db.execute(_END, (*charged, row.is_unknown, *place))
        if not db.changes():
            return False
        for number, id in enumerate(found.scopes):
            db.execute(_SETTLE, (*moved, id, WARN_PERCENT))
            if not db.changes():
                for settled in found.scopes[:number]:
                    db.execute(_UNSETTLE, (*moved, settled))
                db.execute(_REOPEN, place)
                return False
        counted, used = usage_of(write, row, found)
        db.execute(_ADD, (_usage_hash(counted), *counted, *used))
        self.known.ended(key)
        return True


@lru_cache(maxsize=1_000)  # all calls of a run have the same
def _sorted(wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Scopes in their order, each once."""
    return tuple(sorted(set(wanted)))


@lru_cache(maxsize=1_000)
def _usage_hash(key: UsageKey) -> str:
    return columns.usage_hash(key)

"""The reservations that this process made: what settles one need not be read again.

Whether one is still open is known only in the database: another process may have settled it.
"""

from __future__ import annotations

import msgspec

from onward.store.limits.ledger import Ledger, ReservationKey
from onward.store.port.money.limits import Reservation, ReservationState

KNOWN_MAX = 10_000


class Remembered(msgspec.Struct):
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

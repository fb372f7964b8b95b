"""The outbox in memory: what `Outbox` promises, in as few words as possible."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from onward.model.notification import DeliveryState, NotificationKind, Telling
from onward.store.memory.state import State
from onward.store.port.outbox import Attempted, Delivery, DeliveryPlace, DeliveryQuery

WAITING = DeliveryState.WAITING


class MemoryOutbox:
    """The notifications of a database."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def subscribe(
        self, subscriber: str, kinds: Sequence[NotificationKind], *, for_us: int, renew_us: int = 0
    ) -> None:
        now_us, known = self._state.now_us(), self._state.subscribers.get(subscriber)
        if known is None or known[0] != frozenset(kinds) or known[1] - now_us <= renew_us:
            self._state.subscribers[subscriber] = frozenset(kinds), now_us + for_us

    async def claim(self, subscriber: str, *, limit: int, lease_us: int) -> Sequence[Delivery]:
        now_us = self._state.now_us()
        due = [one for one in self._of(subscriber) if one.due_at_us is not None and one.due_at_us <= now_us]
        due.sort(key=lambda one: (one.due_at_us, one.created_at_us, one.id))
        return [
            self._keep(
                replace(
                    one,
                    token=one.token + 1,
                    tries=one.tries + 1,
                    tried_at_us=now_us,
                    due_at_us=now_us + lease_us,
                )
            )
            for one in sorted(due[:limit], key=_written)
        ]

    async def record(self, claimed: Delivery, attempted: Attempted) -> None:
        there = self._state.outbox.get((claimed.id, claimed.subscriber))
        if there is None or there.token != claimed.token or there.state is not WAITING:
            return
        now_us, wait_us = self._state.now_us(), attempted.wait_us
        self._keep(
            replace(
                there,
                state=attempted.state,
                response=attempted.response,
                error=attempted.error,
                due_at_us=None if wait_us is None else now_us + wait_us,
                delivered_at_us=now_us if attempted.state is DeliveryState.DELIVERED else None,
            )
        )

    async def waiting(self, subscriber: str) -> int:
        return sum(one.state is WAITING for one in self._of(subscriber))

    async def read(self, query: DeliveryQuery) -> Sequence[Delivery]:
        found = [
            one
            for one in sorted(self._state.outbox.values(), key=_place, reverse=True)
            if query.run_id in (None, one.run_id)
            and query.state in (None, one.state)
            and (query.place is None or _place(one) < query.place)
        ]
        return found[: query.limit]

    async def retry(self, id: str) -> Sequence[Delivery]:
        found = sorted((one for one in self._state.outbox.values() if one.id == id), key=_written)
        fresh = {"state": WAITING, "tries": 0, "due_at_us": self._state.now_us(), "delivered_at_us": None}
        return [self._keep(replace(one, **fresh)) for one in found]

    def _of(self, subscriber: str) -> list[Delivery]:
        return [one for one in self._state.outbox.values() if one.subscriber == subscriber]

    def _keep(self, delivery: Delivery) -> Delivery:
        self._state.outbox[delivery.id, delivery.subscriber] = delivery
        return delivery


def put_notifications(state: State, telling: Telling | None) -> None:
    """Store what is to be told, for every subscriber that wants it."""
    if telling is None or not state.subscribers:
        return
    now_us = state.now_us()
    for told in telling():
        for subscriber, (kinds, until_us) in state.subscribers.items():
            if told.kind in kinds and until_us > now_us:
                state.outbox[told.id, subscriber] = Delivery(
                    id=told.id,
                    subscriber=subscriber,
                    run_id=told.run_id,
                    seq=told.seq,
                    kind=told.kind,
                    body=told.body,
                    created_at_us=told.at_us,
                    state=WAITING,
                    token=0,
                    tries=0,
                    due_at_us=now_us,
                )


def _place(one: Delivery) -> DeliveryPlace:
    return DeliveryPlace(one.created_at_us, one.id, one.subscriber)


def _written(one: Delivery) -> tuple[int, str, int, str]:
    return one.created_at_us, one.run_id, one.seq, one.id

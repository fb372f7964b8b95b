"""Notifications to columns and back, for every SQL database alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onward.errors import StoreCorrupt
from onward.model.notification import Notification
from onward.store.port.outbox import Attempted, Delivery, DeliveryQuery

_FIELDS = Delivery.__struct_fields__


def delivery_of(columns: Sequence[Any]) -> Delivery:
    """A notification from its columns, which are in the order of its fields."""
    try:
        return msgspec.convert(dict(zip(_FIELDS, columns, strict=True)), Delivery)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the row of notification {columns[0]!r} is damaged: {error}.") from None


def in_order(found: Sequence[Delivery]) -> Sequence[Delivery]:
    """As they were written: of one run, in the order of its events."""
    return sorted(found, key=lambda one: (one.created_at_us, one.run_id, one.seq, one.id))


def put_parameters(notification: Notification) -> dict[str, Any]:
    """The columns of a new notification, and what a subscriber's kinds have in them if it is wanted."""
    values = msgspec.structs.asdict(notification)
    return {**values, "kind": notification.kind.value, "mark": f" {notification.kind.value} "}


def record_parameters(claimed: Delivery, attempted: Attempted) -> dict[str, Any]:
    """What came of a try, and which one it was."""
    return {
        "id": claimed.id,
        "subscriber": claimed.subscriber,
        "token": claimed.token,
        **attempted._asdict(),
        "state": attempted.state.value,
    }


def delivery_filters(query: DeliveryQuery) -> Mapping[str, Any]:
    """The filters of a list of notifications."""
    place = query.place or (None, None, None)
    names = ("before_us", "before_id", "before_subscriber")
    state = None if query.state is None else query.state.value
    named = ("run_id", query.run_id), ("state", state), *zip(names, place, strict=True)
    return {"limit": query.limit, **{name: value for name, value in named if value is not None}}

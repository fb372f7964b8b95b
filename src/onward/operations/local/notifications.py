"""Notifications, from the outbox of a store."""

from __future__ import annotations

import msgspec

from onward.errors import NotificationNotFound
from onward.model.ids import display_id
from onward.model.notification import DeliveryState
from onward.operations.replies.notifications import NotificationList, NotificationShown
from onward.operations.requests.notifications import ListNotifications, RetryNotification
from onward.read.lookup import find_run
from onward.read.view import instant
from onward.store.port.outbox import Delivery, DeliveryQuery, delivery_cursor
from onward.store.port.store import Store


class LocalNotifications(msgspec.Struct, frozen=True):
    """Looks at the outbox of one store, and asks for another try. Workers deliver."""

    store: Store

    async def list_notifications(self, request: ListNotifications) -> NotificationList:
        """Notifications, newest first: of one run, or of all."""
        run_id = None if request.run is None else (await find_run(self.store.runs, request.run)).row.id
        state = None if request.state is None else DeliveryState(request.state)
        query = DeliveryQuery(run_id=run_id, state=state, after=request.cursor, limit=request.limit)
        found = await self.store.outbox.read(query)
        cursor = delivery_cursor(found[-1]) if found and len(found) == request.limit else None
        return {"notifications": [_view(one) for one in found], "cursor": cursor}

    async def retry_notification(self, request: RetryNotification) -> NotificationList:
        """Let a notification be delivered again, whatever became of it."""
        found = await self.store.outbox.retry(request.id)
        if not found:
            raise NotificationNotFound(request.id)
        return {"notifications": [_view(one) for one in found], "cursor": None}


def _view(one: Delivery) -> NotificationShown:
    return {
        "id": one.id,
        "subscriber": one.subscriber,
        "run": one.run_id,
        "display_id": display_id(one.run_id),
        "seq": one.seq,
        "event": one.kind.value,
        "state": one.state.value,
        "tries": one.tries,
        "created_at": instant(one.created_at_us) or "",
        "due_at": instant(one.due_at_us),
        "tried_at": instant(one.tried_at_us),
        "delivered_at": instant(one.delivered_at_us),
        "response": one.response,
        "error": one.error,
        "body": msgspec.json.decode(one.body),
    }

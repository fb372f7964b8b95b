"""Replies about notifications: what was told, or is still to be told, and how that went."""

from __future__ import annotations

from typing import Any, TypedDict


class NotificationShown(TypedDict):
    """A notification on its way to a subscriber. `body` is what the receiver gets.

    `response` is the HTTP status, or the exit code of a command; `error` says why the last try failed.
    """

    id: str
    subscriber: str
    run: str
    display_id: str
    seq: int
    event: str
    state: str
    tries: int
    created_at: str
    due_at: str | None
    tried_at: str | None
    delivered_at: str | None
    response: int | None
    error: str
    body: dict[str, Any]


class NotificationList(TypedDict):
    """A page of notifications, newest first; `cursor` is where the next begins."""

    notifications: list[NotificationShown]
    cursor: str | None

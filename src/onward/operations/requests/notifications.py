"""Requests about notifications."""

from __future__ import annotations

from typing import Literal

from onward.operations.requests.request import Request


class ListNotifications(Request, frozen=True, kw_only=True):
    """Notifications, newest first: of one run or of all, in any state or in one."""

    run: str | None = None
    state: Literal["waiting", "delivered", "failed"] | None = None
    cursor: str | None = None
    limit: int = 50


class RetryNotification(Request, frozen=True, kw_only=True):
    """Deliver a notification again, whatever became of it."""

    id: str

"""Notifications to send in tests."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.model.row import DeliveryState, Facts, NotificationKind
from onward.store.port.runs import Delivery

AT_US = 1_700_000_000_000_000


def delivery(**fields: Any) -> Delivery:
    """A claimed notification of a run that has completed."""
    facts = Facts(
        id="abc",
        event=NotificationKind.FINISHED,
        at="2023-11-14T22:13:20Z",
        run="run",
        display_id="d1sp1a",
        pipeline="story",
        status="completed",
        reason="",
        detail="",
        recoverable=False,
        seq=4,
        gate=None,
        next=None,
    )
    given: dict[str, Any] = {
        "id": "abc",
        "subscriber": "notify",
        "run_id": "run",
        "seq": 4,
        "kind": facts.event,
        "body": msgspec.json.encode(facts).decode(),
        "created_at_us": AT_US,
        "state": DeliveryState.WAITING,
        "token": 1,
        "tries": 1,
    }
    return Delivery(**given | fields)

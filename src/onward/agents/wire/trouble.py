"""An exchange that failed on the way, before anybody can say for which request."""

from __future__ import annotations

from onward.agents.model.failure import FailureKind


class Trouble(Exception):
    """The exchange failed; `what` goes on after the name of the one that was asked."""

    def __init__(self, kind: FailureKind, what: str, *, is_sent: bool) -> None:
        self.kind, self.what, self.is_sent = kind, what, is_sent
        super().__init__(what)

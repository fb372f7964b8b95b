"""An exchange that failed on the way, before anybody can say for which request."""

from __future__ import annotations

from typing import Any

from onward.agents.model.failure import FailureKind


class Trouble(Exception):
    """The exchange failed; `what` goes on after the name of the one that was asked."""

    def __init__(self, kind: FailureKind, what: str, *, is_sent: bool) -> None:
        self.kind, self.what, self.is_sent = kind, what, is_sent
        super().__init__(what)


class ErrorInAnswer(Exception):
    """The server tells an error in the middle of an answer; `error` is what it sent."""

    def __init__(self, error: Any) -> None:
        self.error = error
        super().__init__("an error inside the answer")

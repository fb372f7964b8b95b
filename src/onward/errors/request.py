"""Requests that cannot be granted: what they name is missing, or the run's state does not allow them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.errors.root import OnwardError


class Refused(OnwardError):
    """A request that the run's state does not allow; nothing was changed."""

    def __init__(self, code: str, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        self.code, self.details = code, dict(details or {})
        super().__init__(message)


class StillGoing(OnwardError, TimeoutError):
    """A run has not stopped in the time that was given; it continues. Also a TimeoutError."""

    def __init__(self, run_id: str, status: str, timeout_s: float) -> None:
        self.run_id, self.status, self.timeout_s = run_id, status, timeout_s
        super().__init__(f"run {run_id} is still {status} after {timeout_s:g} s; it continues.")


class RunNotFound(OnwardError):
    """No run has this id, display id or prefix. `near` is what a run is called that may be meant, if any."""

    def __init__(self, wanted: str, near: str = "") -> None:
        self.wanted, self.near = wanted, near
        meant = f"; did you mean {near!r}? `onward status`" if near else "; `onward status`"
        super().__init__(f"no run {wanted!r} in this database{meant} lists the runs.")


class AmbiguousRun(OnwardError):
    """Several runs match this id."""

    def __init__(self, wanted: str, matches: Sequence[str]) -> None:
        self.wanted, self.matches = wanted, tuple(matches)
        super().__init__(f"{wanted!r} matches several runs: {', '.join(self.matches)}; give more of the id.")


class ArtifactNotFound(OnwardError):
    """The run has no artifact with this id."""

    def __init__(self, id: str, known: Sequence[str]) -> None:
        self.id, self.known = id, tuple(known)
        there = f"it has {', '.join(sorted(known)[:20])}" if known else "it has none"
        super().__init__(f"no artifact {id!r} in this run; {there}.")


class StepNotFound(OnwardError):
    """The run has started no step with this id, of this node or at this place."""

    def __init__(self, wanted: str, known: Sequence[str]) -> None:
        self.wanted, self.known = wanted, tuple(known)
        more = f" and {len(known) - 20} more" if len(known) > 20 else ""
        there = f"it has {', '.join(known[:20])}{more}" if known else "it has none"
        super().__init__(f"this run has started no step {wanted!r}; {there}.")


class NotificationNotFound(OnwardError):
    """There is no notification with this id."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(f"there is no notification {wanted!r}; `onward notifications` lists them.")


class ChatNotFound(OnwardError):
    """There is no run and no chat with this name. `near`: as of RunNotFound."""

    def __init__(self, wanted: str, near: str = "") -> None:
        self.wanted, self.near = wanted, near
        meant = f"; did you mean {near!r}? `onward status`" if near else "; `onward status`"
        super().__init__(
            f"there is no run {wanted!r}, and nothing was said in a chat of this name{meant} lists runs."
        )

"""Why runs stop, as data: a row for each reason, and what follows from it.

Code that stops a run names the row's constant; code that asks about a stopped run asks for a column, never
for the text of a reason. `docs/state-machine.md` is generated from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from onward.model.run import DEAD_END, RESTARTED_AS, RunStatus

PAUSED, INTERRUPTED, FAILED = RunStatus.PAUSED, RunStatus.INTERRUPTED, RunStatus.FAILED
COMPLETED, CANCELLED = RunStatus.COMPLETED, RunStatus.CANCELLED


class ContinuedBy(StrEnum):
    """Who or what lets a stopped run continue. A person may resume it, except in the last two cases."""

    PERSON = "person"
    MANAGER = "manager"
    """The run that manages it, too: nobody meant it to stop."""
    LIMIT = "limit"
    """A limit that is raised, or whose time is over; until then a resume is refused."""
    SUCCESSOR = "successor"
    """Another run does, in its place."""
    NOBODY = "nobody"


class ContinuesAt(StrEnum):
    """Where a resume that names no node continues."""

    NEXT = "next"
    """Where the run stands."""
    EDGES = "edges"
    """At the edges of its stopped step, which has finished: one of them must be open by now."""
    STOPPED = "stopped"
    """At its stopped step itself, which has finished and runs again."""


class Reason(msgspec.Struct, frozen=True):
    """Why a run stopped, which status that is, and how it can continue."""

    status: RunStatus
    continued_by: ContinuedBy
    says: str
    resume_with: str = ""
    """The flags of which `onward resume` needs one, if a plain resume is refused."""
    continues_at: ContinuesAt = ContinuesAt.NEXT
    ends_branch: bool = False
    """Whether it ends only its branch inside a fan-out; any other reason stops the whole run there."""
    holder_died: bool = False
    """Whether the process is gone that executed the run: what it was writing has no end."""

    @property
    def recoverable(self) -> bool:
        """Whether a person may resume the run."""
        return self.continued_by not in (ContinuedBy.SUCCESSOR, ContinuedBy.NOBODY)


NO_ROW = Reason(COMPLETED, ContinuedBy.NOBODY, "")
_ROWS: dict[str, Reason] = {}
REASONS: Mapping[str, Reason] = _ROWS


def _row(name: str, reason: Reason) -> str:
    """Enter the row of a reason, and name it."""
    if name in _ROWS:
        raise AssertionError(f"{name!r} has two rows")
    _ROWS[name] = reason
    return name


_PERSON, _MANAGER, _NOBODY = ContinuedBy.PERSON, ContinuedBy.MANAGER, ContinuedBy.NOBODY

# With one of these a process can be asked to stop its runs, too (`engine/stop.py`).
SIGNAL = _row("signal", Reason(PAUSED, _PERSON, "stopped by Ctrl-C or a termination signal"))
MANAGER = _row("manager", Reason(PAUSED, _MANAGER, "the run that manages it was stopped"))
OPERATOR = _row("operator", Reason(PAUSED, _PERSON, "a pause was requested"))

RESTART = _row("restart", Reason(INTERRUPTED, _MANAGER, "the server restarted while the run was running"))
CRASH = _row("crash", Reason(INTERRUPTED, _MANAGER, "the process that held the run died", holder_died=True))
LIMIT = _row("limit", Reason(INTERRUPTED, ContinuedBy.LIMIT, "a limit allows no further call"))
IN_DOUBT = _row(
    "in_doubt",
    Reason(
        INTERRUPTED,
        _PERSON,
        "a step that must not be repeated may or may not have run",
        resume_with="--retry|--skip|--continue|--abort",
        holder_died=True,
    ),
)
RATE_LIMIT = _row("rate_limit", Reason(INTERRUPTED, _MANAGER, "the provider asked to retry later"))

CHILD = _row("child", Reason(INTERRUPTED, _PERSON, "a run that its flow waits for has stopped"))

# A manager resumes a failed child for each of its own retries, whatever the reason.
STEP_FAILED = _row(
    "step_failed",
    Reason(FAILED, _PERSON, "a step failed and no edge or retry target handles it", ends_branch=True),
)
NO_WAY_ON = _row(
    "no_way_on",
    Reason(
        FAILED,
        _PERSON,
        "a step finished and none of its edges can be followed",
        resume_with="--accept-changes|--retry|--from NODE",
        continues_at=ContinuesAt.EDGES,
        ends_branch=True,
    ),
)
GOAL_UNMET = _row(
    "goal_unmet",
    Reason(
        FAILED,
        _PERSON,
        "the exit was reached with an unmet goal gate",
        continues_at=ContinuesAt.STOPPED,  # what comes after the gate would only reach it again
    ),
)
CRASH_LOOP = _row("crash_loop", Reason(FAILED, _PERSON, "its processes kept dying without a new checkpoint"))
FLOW_CHANGED = _row("flow_changed", Reason(FAILED, _PERSON, "the code of a flow does not match its history"))
PIPELINE_ERROR = _row(
    "pipeline_error", Reason(FAILED, _PERSON, "the pipeline itself does not let it continue")
)
PROVIDER_AUTH = _row("provider_auth", Reason(FAILED, _PERSON, "the model provider does not accept the key"))
PROVIDER_CREDIT = _row(
    "provider_credit", Reason(FAILED, _PERSON, "the account at the model provider has no credit left")
)
PROVIDER_FORBIDDEN = _row("provider_forbidden", Reason(FAILED, _PERSON, "the key may not use the model"))
PROVIDER_REQUEST = _row(
    "provider_request", Reason(FAILED, _PERSON, "the model provider does not accept the request")
)
REJECTED = _row("rejected", Reason(FAILED, _NOBODY, "a gate was rejected and no edge handles that"))
INVALID = _row("invalid", Reason(FAILED, _NOBODY, "the run cannot work as requested"))

# The fold sets these; the run's detail is the node, or the other run.
_row(DEAD_END, Reason(COMPLETED, _NOBODY, "it ended at a node that has no edges and is not the exit"))
_row(
    RESTARTED_AS,
    Reason(COMPLETED, ContinuedBy.SUCCESSOR, "a loop_restart edge ended it and another run continues"),
)

USER = _row("user", Reason(CANCELLED, _NOBODY, "cancellation was requested"))
SUPERSEDED = _row("superseded", Reason(CANCELLED, ContinuedBy.SUCCESSOR, "a new run replaced it"))


def reason_of(name: str) -> Reason:
    """The row of a run's reason. One that is not in the table says nothing and lets nobody continue."""
    return REASONS.get(name, NO_ROW)


def is_recoverable(status: RunStatus, reason: str) -> bool:
    """Whether a person may resume a run that stopped like this."""
    found = reason_of(reason)
    return found.recoverable and found.status is status


def is_at_limit(reason: str) -> bool:
    """Whether a limit stopped the run, so that a higher one lets it continue."""
    return reason_of(reason).continued_by is ContinuedBy.LIMIT


def resume_flags(reason: str, doubtful: str | None) -> str:
    """The flags of which a resume needs one after this stop; `doubtful` is a step in doubt, if any."""
    return reason_of(IN_DOUBT if doubtful is not None else reason).resume_with

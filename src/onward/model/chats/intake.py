"""Intake: what a user's message asks for, and what became of it."""

from __future__ import annotations

from enum import StrEnum

from blake3 import blake3

from onward.model.ids import derived_run_id
from onward.model.run import Frozen


class Wish(StrEnum):
    """What a user says about a message: nothing, start anew, or continue what stopped."""

    NONE = ""
    FRESH = "fresh"
    RESUME = "resume"


class IntakeState(StrEnum):
    """How a message stands: nothing is decided yet or it waits for a run; its run has an id and may not be
    created yet; or it is dealt with."""

    PENDING = "pending"
    STARTING = "starting"
    DONE = "done"


class Outcome(StrEnum):
    """What became of a message."""

    STARTED = "started"
    RESUMED = "resumed"
    STEERED = "steered"
    ANSWERED = "answered"
    GATE = "gate"
    ASKED = "asked"
    LIMIT = "limit"
    REFUSED = "refused"


class Intake(Frozen, frozen=True, kw_only=True):
    """A user's message with what it asks for, and what became of it. `n` is its place in the order of all.

    `body_hash` is that of the request that said it. `project`, `pipeline` and `workdir` (where the
    commands of its run work) are what it named, if anything.
    `behind` is the run that it waits for; `run_id` the run that it started, resumed or spoke to. `reading` is
    what was made of it before its run began, as JSON. `notice` is what its sender was told.
    """

    n: int
    message: str
    chat: str
    body_hash: str
    said_by: str
    wish: Wish
    project: str
    pipeline: str
    workdir: str
    state: IntakeState
    behind: str
    outcome: Outcome | None
    run_id: str
    reading: str
    notice: str
    at_us: int
    done_at_us: int | None


def keyed_message_id(by: str, key: str) -> str:
    """The id of a message that was sent under a key: the same whenever the same sender sends it again."""
    return blake3(f"{by} says under {key}".encode()).hexdigest(length=13)


def run_of_message(message: str, at_us: int) -> str:
    """The id of the run that a message starts: no message starts two."""
    return derived_run_id(at_us, f"run of message {message}")


def answer_to(message: str, what: str) -> str:
    """The id of what Onward says about a message: said again, it is said once."""
    return blake3(f"{what} for message {message}".encode()).hexdigest(length=13)

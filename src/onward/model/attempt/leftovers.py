"""What a step that was cut off left, as far as it could be seen."""

from __future__ import annotations

from enum import StrEnum

from onward.model.run import Frozen

NOT_LEFT = frozenset({"prompt.md", "stdout.log", "stderr.log"})
"""Files of an attempt that say nothing about what it did: its prompt, and what it printed."""


class Assessment(StrEnum):
    """Clean: everything was looked at, and nothing is there. Unknown: nothing was found in what was seen."""

    CLEAN = "clean"
    PARTIAL = "partial"
    UNKNOWN = "unknown"


class LeftFile(Frozen, frozen=True):
    """A file and its size, None if it was removed.

    A directory, whose name ends with a slash, is new, or something was removed from it.
    """

    path: str
    bytes: int | None


class LeftEffect(Frozen, frozen=True, kw_only=True):
    """An effect that the step began: `state` is begun, in_doubt or finished.

    `about` is the tool of an agent, and what it was used with, shortened.
    """

    key: str
    state: str
    begun_at_us: int
    about: str = ""


class Left(Frozen, frozen=True, kw_only=True):
    """One step: the call that was open, what is in its own directory, and what changed since it began.

    `unseen` says what could not be looked at and why. `place` is where changes were looked for.
    """

    step: str
    node: str
    attempt: int
    began_at_us: int | None = None
    handler: str = ""
    command: str = ""
    directory: str | None = None
    files: tuple[LeftFile, ...] = ()
    place: str | None = None
    changed: tuple[LeftFile, ...] = ()
    effects: tuple[LeftEffect, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def assessment(self) -> Assessment:
        """Partial if something was found; clean only if everything could be looked at."""
        if self.changed or self.effects or any(file.path not in NOT_LEFT for file in self.files):
            return Assessment.PARTIAL
        return Assessment.UNKNOWN if self.unseen else Assessment.CLEAN

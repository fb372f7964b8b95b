"""What a step has while it runs: its artifacts, and perhaps a directory."""

from __future__ import annotations

from dataclasses import replace

from onward.handlers.artifacts import Artifacts
from onward.handlers.previous_attempt import NOTHING_LEFT, PreviousAttempt
from onward.model.result import Result
from onward.pipeline.graph import Node

AUTOMATIC = "the status was set automatically: the step reported none"


class Room:
    """A room without a directory. The engine has one with a directory."""

    is_full = False
    """Whether the step's files are written even if it does not ask for its directory."""

    _artifacts: Artifacts | None = None

    def _make_artifacts(self) -> Artifacts:
        return Artifacts()

    @property
    def directory(self) -> str | None:
        return None

    @property
    def left(self) -> PreviousAttempt:
        """What the previous attempt left on disk; looking for it takes a moment."""
        return NOTHING_LEFT

    @property
    def run_directory(self) -> str | None:
        return None

    @property
    def artifacts(self) -> Artifacts:
        if self._artifacts is None:
            self._artifacts = self._make_artifacts()
        return self._artifacts

    def keep_output(self, stream: str, data: bytes) -> None:
        """Keep what the attempt prints, where there is a place for it."""

    def end_output(self) -> None:
        """The attempt prints nothing more."""

    def is_used(self) -> bool:
        """Whether the step left something here that belongs to its result."""
        return self._artifacts is not None

    async def prepare(self, node: Node, prompt: str) -> None:
        """Prepare the files of a step that is about to start in a full room."""

    async def settle(self, node: Node, result: Result) -> Result:
        """The result together with what the step left here."""
        if not result.is_decided and node.auto_status:
            result = replace(result, notes="; ".join(filter(None, (AUTOMATIC, result.notes))))
        return self._with_artifacts(result)

    def _with_artifacts(self, result: Result) -> Result:
        found = self._artifacts
        if found is None or not found.changes:
            return result
        return replace(result, artifacts=dict(found.changes), contents=dict(found.contents))

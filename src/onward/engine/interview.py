"""Whoever answers gates while a run is in the foreground."""

from __future__ import annotations

from typing import Protocol

from onward.model.run import Gate, Run


class Interviewer(Protocol):
    """Answers questions, or leaves them open."""

    @property
    def name(self) -> str:
        """Who the log says answered."""
        ...

    async def ask(self, run: Run, gate: Gate) -> str | None:
        """The answer to a gate, or None to leave it waiting."""
        ...


class AutoApprove:
    """Takes the first choice of every gate."""

    name = "auto"

    async def ask(self, run: Run, gate: Gate) -> str | None:
        return gate.choices[0].key

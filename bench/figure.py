"""One line of a report: what was measured, what came out, and what was wanted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report."""

    what: str
    value: str
    goal: str
    met: bool

    def __str__(self) -> str:
        return f"{'ok  ' if self.met else 'MISS'}  {self.what:<52} {self.value:<44} goal {self.goal}"

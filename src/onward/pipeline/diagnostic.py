"""One finding about a pipeline definition: what is wrong, where, and what to do about it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How much a finding matters; an error forbids execution."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Diagnostic(msgspec.Struct, frozen=True):
    """A finding with its rule and its exact place; lines and columns count from 1."""

    rule: str
    severity: Severity
    message: str
    file: str
    line: int
    column: int
    node_id: str | None = None
    edge: tuple[str, str] | None = None
    fix: str | None = None

    def __str__(self) -> str:
        fix = f" ({self.fix})" if self.fix else ""
        return f"{self.file}:{self.line}:{self.column}: {self.severity} [{self.rule}] {self.message}{fix}"


def by_position(diagnostic: Diagnostic) -> tuple[int, int, str, str]:
    """Sort key: the order of the findings in the file."""
    return diagnostic.line, diagnostic.column, diagnostic.rule, diagnostic.message

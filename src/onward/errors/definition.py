"""Errors of a pipeline's definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onward.errors.root import OnwardError

if TYPE_CHECKING:
    from onward.pipeline.diagnostic import Diagnostic


class InvalidPipeline(OnwardError):
    """A pipeline definition has errors; all of them are in `diagnostics`, followed by the warnings.

    `advice` is a sentence about all of them, such as how to do without this definition.
    """

    def __init__(self, diagnostics: Sequence[Diagnostic], advice: str = "") -> None:
        self.diagnostics, self.advice = tuple(diagnostics), advice
        super().__init__("\n".join(filter(None, (*map(str, self.diagnostics), advice))))


class ConditionError(OnwardError):
    """A condition does not parse; `offset` is the character at fault, counted from 0."""

    def __init__(self, message: str, offset: int) -> None:
        self.message, self.offset = message, offset
        super().__init__(message)


class StylesheetError(OnwardError):
    """A model stylesheet does not parse; `offset` is the character at fault, counted from 0."""

    def __init__(self, message: str, offset: int) -> None:
        self.message, self.offset = message, offset
        super().__init__(message)


class UnknownHandler(OnwardError):
    """A pipeline names a node kind that no handler serves."""

    def __init__(self, node_id: str, kind: str, known: Sequence[str]) -> None:
        self.node_id, self.kind, self.known = node_id, kind, tuple(known)
        super().__init__(
            f"node {node_id!r} needs handler {kind!r}, which is not registered; "
            f"registered: {', '.join(sorted(known))}. Check the node's `type`, or name the app with --app."
        )

"""How reading a statement fails."""

from __future__ import annotations

from onward.pipeline.dot.lexer import Token


class Trouble(Exception):
    """A statement cannot be read from `start`; the reader reports it and continues with the next one."""

    def __init__(self, message: str, start: int, *, rule: str = "syntax", fix: str | None = None) -> None:
        self.message, self.start, self.rule, self.fix = message, start, rule, fix
        super().__init__(message)


def unexpected(token: Token, expected: str) -> Trouble:
    """Another token was expected here."""
    return Trouble(f"expected {expected}, found {token}", token.start)


def unsupported(message: str, start: int, *, fix: str) -> Trouble:
    """Graphviz supports this, and the dialect does not."""
    return Trouble(message, start, rule="unsupported", fix=fix)

"""Whether a request was answered as a repeat of one that was made before, for callers who tell.

    with answering() as answer:
        reply = await operations.decide.pause_run(request)
    if answer.is_repeat: ...

A reply says how its subject stands, and is the same for the first answer and for a repeated one, so this is
said beside it. Whoever does not ask pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec


class Answer(msgspec.Struct):
    """What is known of an answer beside its reply: `is_repeat`, nothing was written for it."""

    is_repeat: bool = False


_answer: ContextVar[Answer | None] = ContextVar("answer", default=None)


@contextmanager
def answering() -> Iterator[Answer]:
    """Listen to what is said of the answer to the one request that is made in the block."""
    answer = Answer()
    token = _answer.set(answer)
    try:
        yield answer
    finally:
        _answer.reset(token)


def note_answer(*, is_repeat: bool) -> None:
    """Say of the request that is being answered that its key had been used for it before."""
    answer = _answer.get()
    if answer is not None and is_repeat:
        answer.is_repeat = True

"""What delivers a notification, and how a try ends."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from onward.store.port.runs import Delivery

ERROR_CHARACTERS_MAX = 300


class Sent(NamedTuple):
    """How a try ended: it was delivered if `error` is empty. `response` is an HTTP status or an exit code.

    `error` may be long: it is redacted as a whole before it is cut.
    """

    response: int | None
    error: str = ""


class Sender(Protocol):
    """Delivers notifications."""

    async def send(self, delivery: Delivery) -> Sent:
        """Try once, within the time limit. Whatever goes wrong outside is in the answer, and nothing is
        raised."""
        ...

    def close(self) -> None:
        """Let go of what sending needs."""
        ...


def one_line(text: str) -> str:
    """What a receiver said, short enough for a list."""
    return " ".join(text.split())[:ERROR_CHARACTERS_MAX]

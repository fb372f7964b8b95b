"""The port: whatever answers requests is a Model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from onward.agents.model.request import ModelRequest
from onward.agents.model.stream import Streamed


class Model(Protocol):
    """Answers requests, each once: it never retries."""

    def stream(
        self, request: ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[Streamed, None]:
        """The pieces of the answer as they come, the last one Finished; raises ModelFailed.

        Nothing is sent before the first piece is asked for. Close the generator to stop early
        (`async with aclosing(model.stream(request)) as pieces`): the connection is dropped.
        """
        ...

    async def close(self) -> None:
        """Give back what it holds; it may be used again."""
        ...

"""Workers: the processes that take runs from the queue, with what each of them serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onward.model.worker import Offer, RegisteredWorker


class Workers(Protocol):
    """Who would take a queued run. Judged alive by the same means as the holders of runs."""

    @property
    def renew_s(self) -> float:
        """How often to call `register`: often enough to be known as alive."""
        ...

    async def register(self, offer: Offer) -> None:
        """Say that this process takes runs, and which; or that it still does."""
        ...

    async def leave(self) -> None:
        """Say that this process takes no more runs."""
        ...

    async def read(self) -> Sequence[RegisteredWorker]:
        """Every registered worker, in the order in which they started."""
        ...

    async def tidy(self) -> int:
        """Remove workers that are dead; returns how many."""
        ...

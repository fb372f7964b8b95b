"""Workers as the database knows them, and what a queued run waits for that none of them has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from onward.model.needs import handlers_missing, needed_directory


class Offer(msgspec.Struct, frozen=True):
    """What a worker serves: its handlers, and how many runs at once.

    `lacks` are the directories that runs of the queue needed and that it does not have.
    """

    handlers: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    concurrency: int = 1


class RegisteredWorker(msgspec.Struct, frozen=True):
    """A process that takes runs from the queue, by its stored name, and whether it can still be alive."""

    owner: str
    offer: Offer
    started_at_us: int
    is_alive: bool

    def serves(self, needs: Iterable[str]) -> bool:
        """Whether it takes runs with these needs, as far as it has said."""
        needs = tuple(needs)
        directories = (needed_directory(need) for need in needs)
        return not handlers_missing(needs, self.offer.handlers) and not any(
            directory in self.offer.lacks for directory in directories
        )


class WaitingFor(msgspec.Struct, frozen=True):
    """What a queued run waits for: a worker at all, handlers, or a directory. `workers` is how many live.

    If no live worker has all `handlers`, but each of them has one, `is_split`.
    """

    workers: int = 0
    handlers: tuple[str, ...] = ()
    directory: str | None = None
    is_split: bool = False

    @property
    def says(self) -> str:
        """A sentence for people."""
        if not self.workers:
            return "no worker is running; start one with `onward worker`"
        if self.directory is not None:
            return f"no live worker has the directory {self.directory}"
        names = ", ".join(map(repr, self.handlers))
        if self.is_split:
            return f"no live worker has all of the handlers {names}"
        return f"no live worker has the handler{'' if len(self.handlers) == 1 else 's'} {names}"


def waiting_for(needs: Iterable[str], workers: Sequence[RegisteredWorker]) -> WaitingFor | None:
    """What a run with these needs waits for that no live worker has; None if one can take it."""
    needs, live = tuple(needs), [worker for worker in workers if worker.is_alive]
    if not live:
        return WaitingFor()
    if any(worker.serves(needs) for worker in live):
        return None
    known = {handler for worker in live for handler in worker.offer.handlers}
    missing = handlers_missing(needs, known)
    if missing:
        return WaitingFor(len(live), tuple(missing))
    if all(handlers_missing(needs, worker.offer.handlers) for worker in live):
        return WaitingFor(len(live), tuple(handlers_missing(needs, ())), is_split=True)
    directory = next(filter(None, map(needed_directory, needs)), None)
    return WaitingFor(len(live), directory=directory)

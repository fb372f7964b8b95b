"""Finding runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from onward.errors import InvalidInput
from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.model.values.bounds import LISTED
from onward.model.values.tags import checked_tags
from onward.store.port.cursor import read_cursor, write_cursor
from onward.store.port.leases import Holder

RELATIVES_MAX = 1_000
TEXT_MAX = 200
SEARCHED_MAX = 100_000


class RunPlace(NamedTuple):
    """A run's place in a list: nothing that happens to it changes it."""

    created_at_us: int
    id: str


class Listed(msgspec.Struct, frozen=True):
    """A row in a list, and who holds the run."""

    row: RunRow
    holder: Holder | None

    @property
    def cursor(self) -> str:
        """Where a list that goes on after this run begins."""
        return write_cursor(RunPlace(self.row.created_at_us, self.row.id))


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list, newest first by creation: those that fit every filter that is given.

    `text` is part of the id, the display id, the pipeline or the detail, whatever the case of its ASCII
    letters. Such a search may end after the newest SEARCHED_MAX runs that fit the other filters (for each
    status and reason that is given). `after` is the cursor of a run (`Listed.cursor`): the list continues
    with the next older one. `tags`: runs that have all of them. `chat`: those that were given this chat.
    """

    statuses: tuple[RunStatus, ...] = ()
    pipeline: str | None = None
    limit: int = 50
    reasons: tuple[str, ...] = ()
    parent: str | None = None
    text: str | None = None
    after: str | None = None
    tags: tuple[str, ...] = ()
    chat: str | None = None

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")
        if len(self.text or "") > TEXT_MAX:
            raise InvalidInput(
                f"the text to look for has more than {TEXT_MAX} characters; use a shorter one."
            )
        checked_tags(self.tags)
        if self.after is not None:
            read_cursor(self.after, RunPlace)

    @property
    def place(self) -> RunPlace | None:
        """The place of the run that the list continues after."""
        return None if self.after is None else read_cursor(self.after, RunPlace)


def lowered(text: str) -> str:
    """The text with its ASCII letters in lower case: the same on every store, whatever its language."""
    return text.encode().lower().decode()


class Runs(Protocol):
    """Finding runs."""

    async def find(self, wanted: str) -> Sequence[Listed]:
        """Runs by display id; if there is none, by full id; if there is none, by prefix of either."""
        ...

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        """Runs, newest first."""
        ...

    async def relatives(self, run_id: str) -> Sequence[Listed]:
        """The forks of this run and the runs that its steps manage, oldest first; at most RELATIVES_MAX."""
        ...

    async def held(self) -> Sequence[Listed]:
        """Every run that a process holds, whether that process is alive or not."""
        ...

    async def count(self) -> Mapping[RunStatus, int]:
        """How many runs there are in each status."""
        ...

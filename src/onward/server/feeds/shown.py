"""The state of runs, folded once for all readers: a run in full, and a row of a list.

These have no cursor: a reader gets the whole first, and then changes. They are read again when the run
has changed, at most twice a second, and less often where that takes long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from onward.errors import OnwardError, RunNotFound
from onward.model.ids import EXACT
from onward.model.run import RunStatus
from onward.operations import requests
from onward.replies.runs import RunState
from onward.server.feeds.frames import Frame, Stream, frame, notice
from onward.server.feeds.topics import Reading
from onward.store.port.runs import RunHead

EVERY_S = 0.5
SHARE = 10
"""What takes long is read again only after this many times as long."""
QUEUED_S = 5.0
"""What a queued run waits for depends on workers, whose coming and going changes no run."""
STATE_FIELDS = frozenset(RunState.__annotations__) - {"context"}


class Folded(Protocol):
    """What is read of one run: `whole` for a new reader, `news` for those who have it as it was before."""

    stream: Stream

    async def read(self) -> None: ...

    @property
    def whole(self) -> Frame | None: ...

    @property
    def news(self) -> Frame | None: ...


class Standing:
    """A run in full, without its context; and the rows of its timeline that changed."""

    stream: Stream = "state"

    def __init__(self, reading: Reading, run: str) -> None:
        self._look, self._run = reading.look, run
        self._timeline: dict[str, Any] = {}
        self._value: dict[str, Any] = {}
        self.whole: Frame | None = None
        self.news: Frame | None = None

    async def read(self) -> None:
        """Read it again."""
        shown: Mapping[str, Any] = await self._look.show_run(requests.ShowRun(run=f"{EXACT}{self._run}"))
        value = {name: field for name, field in shown.items() if name in STATE_FIELDS}
        value["branches"] = [{**branch, "context": {}} for branch in value["branches"]]
        timeline = {row["key"]: row for row in shown.get("timeline", ())}
        moved = [row for key, row in timeline.items() if self._timeline.get(key) != row]
        gone = [key for key in self._timeline if key not in timeline]
        if value == self._value and not moved and not gone:
            self.news = None
            return
        self._value, self._timeline = value, timeline
        self.whole = self._framed([*timeline.values()], [])
        self.news = self._framed(moved, gone)

    def _framed(self, rows: list[Any], gone: list[str]) -> Frame:
        value = {**self._value, "timeline": rows, "timeline_gone": gone}
        return frame("state", "state", self._value["head"], value, run=self._run)


class Row:
    """A run as lists show it."""

    stream: Stream = "rows"

    def __init__(self, reading: Reading, run: str) -> None:
        self._lists, self._run = reading.lists, run
        self._value: Any = None
        self.whole: Frame | None = None
        self.news: Frame | None = None

    async def read(self) -> None:
        """Read it again."""
        found = await self._lists.list_runs(requests.ListRuns(run=f"{EXACT}{self._run}"))
        (value,) = found["runs"]
        if value == self._value:
            self.news = None
            return
        self._value = value
        self.whole = self.news = frame("rows", "row", value["head"], value, run=self._run)


class Watched:
    """A run that is shown: when it is read again, and what became of it."""

    def __init__(self, folded: Folded, run: str) -> None:
        self.run, self.is_gone, self._folded = run, False, folded
        self._seen: RunHead | None = None
        self._due_s = self._again_s = 0.0

    @property
    def whole(self) -> Frame | None:
        """What a new reader gets; None if it was not read yet."""
        return self._folded.whole

    def is_due(self, head: RunHead | None, now_s: float) -> bool:
        """Whether it is to be read now."""
        if self.is_gone or now_s < self._due_s:
            return False
        is_queued = head is not None and head.status is RunStatus.QUEUED
        return head != self._seen or self.whole is None or (is_queued and now_s >= self._again_s)

    async def read(self, head: RunHead | None, now_s: float) -> Frame | None:
        """Read it; returns what is new to those who have it as it was before."""
        self._seen, self._due_s, self._again_s = head, now_s + EVERY_S, now_s + QUEUED_S
        try:
            await self._folded.read()
        except RunNotFound:
            self.is_gone = True
            gone = {"run": self.run, "status": "deleted"}
            return notice("end", gone, stream=self._folded.stream, run=self.run)
        except OnwardError:
            return None  # its own page says what is wrong with it
        return self._folded.news

    def took(self, seconds: float, now_s: float) -> None:
        """Note how long reading took: it never takes more than a share of the hub's time."""
        self._due_s = now_s + max(EVERY_S, SHARE * seconds)

"""One poll for all readers: a change is found once and passed to everyone who follows it.

The hub has its own loop (`thread`) and store. It polls at most twenty times a second, and seven if no change
is known; a poll without changes costs a few microseconds on SQLite, and three small queries elsewhere. `poke`
reports what this process itself commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Sequence

from onward.clock import Clock
from onward.errors import HistoryCorrupt, InvalidInput, OnwardError, RunNotFound, StoreCorrupt, StoreError
from onward.model.run import RunStatus
from onward.server.feeds.frames import Batch, Frame, notice
from onward.server.feeds.readers import UNREACHABLE, Reader
from onward.server.feeds.shown import Row, Standing, Watched
from onward.server.feeds.topics import (
    FINAL,
    ChangedRuns,
    DialectEvents,
    Reading,
    RunEvents,
    Said,
    Seen,
    Topic,
    place_of_messages,
)
from onward.server.feeds.wants import Events, Feed, Messages, Rows, State, Want
from onward.store.port.runs import RunHead

log = logging.getLogger("onward.feeds")
TICK_S = 0.15
LEAST_S = 0.05
"""Between two looks, even if the process commits all the time."""
ANYWAY_S = 2.0
"""Look although nothing was written: the process that holds a run may have died."""
FAILED_S = 1.0
BEHIND_MAX = 8
"""How many readers read their backlog at a time; the others wait, and the looks go on."""
SHOW_S_MAX = 0.1
UNREADABLE = (HistoryCorrupt, StoreCorrupt)
GOING = (RunStatus.QUEUED, RunStatus.RUNNING)


class Following:
    """A reader that follows a topic: `cursor` is what it has seen, and it is live once that is all."""

    __slots__ = ("cursor", "is_live", "is_only", "reader")

    def __init__(self, reader: Reader, cursor: int, *, is_only: bool) -> None:
        self.reader, self.cursor, self.is_only = reader, cursor, is_only
        self.is_live = False

    def give(self, batch: Batch) -> bool:
        """Pass on what comes after the cursor; tells whether there was any."""
        left = batch.after(self.cursor)
        if left is not None:
            self.reader.put(left)
        return left is not None

    def end(self, last: Frame) -> None:
        """Pass on that nothing comes after this."""
        if self.is_only:
            self.reader.finish(last)
        else:
            self.reader.put(Batch([last]))


class Line:
    """A topic with those who follow it, and how far the hub has come in it."""

    __slots__ = ("cursor", "followers", "last", "topic")

    def __init__(self, topic: Topic, cursor: int) -> None:
        self.topic, self.cursor = topic, cursor
        self.followers: set[Following] = set()
        self.last: Frame | None = None


class Hub:
    """Follows what is asked for. All of it runs in one loop; between two awaits nothing else does."""

    def __init__(self, reading: Reading, clock: Clock) -> None:
        self.loop = asyncio.get_running_loop()
        self._reading, self._clock = reading, clock
        self._lines: dict[object, Line] = {}
        self._watched: dict[object, tuple[Watched, dict[Reader, bool]]] = {}
        self._waits: dict[str, set[asyncio.Future[None]]] = {}
        self._of: dict[Reader, set[object]] = {}
        self._touched: set[Reader] = set()
        self._poked = asyncio.Event()
        self._behind = asyncio.Semaphore(BEHIND_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._version: object = None
        self._seen, self._asked = Seen(), set[str]()
        self._is_new, self._anyway_s = True, 0.0
        self._is_failing = False

    @property
    def watched(self) -> int:
        """How many things somebody follows or waits for."""
        return len(self._lines) + len(self._watched) + len(self._waits)

    # -- asking ----------------------------------------------------------------------------------------

    async def head(self, run: str) -> RunHead:
        """Where the log of a run ends; RunNotFound if there is no run of exactly this id."""
        found = await self._reading.store.runs.heads([run])
        if run not in found:
            raise RunNotFound(run)
        return found[run]

    async def follow(self, reader: Reader, wants: Sequence[Want], *, is_only: bool = False) -> bool:
        """Tell a reader what it wants from now on; False if there is nothing more to tell.

        `is_only`: the end of what it wants is the end of the reader.
        """
        for want in wants:
            if not await self._follow(reader, want, is_only=is_only):
                return False
        self._wake()
        return True

    async def _follow(self, reader: Reader, want: Want, *, is_only: bool) -> bool:
        match want:
            case Events(run, after, dialect):
                head = await self.head(run)
                if is_only and head.status in FINAL and after >= head.head:
                    return False
                events = (DialectEvents if dialect else RunEvents)(self._reading, run)
                await self._join(reader, ("events", run, dialect), events, after, is_only)
            case Messages(of, after):
                chat, run_in = await place_of_messages(self._reading, of)
                topic = Said(self._reading, chat, run_in)
                await self._join(reader, ("messages", chat, run_in), topic, after, is_only)
            case Feed(number):
                await self._join_feed(reader, number, is_only)
            case State(run):
                await self.head(run)
                self._watch(reader, ("state", run), Watched(Standing(self._reading, run), run))
            case Rows(runs):
                for run in runs:
                    self._watch(reader, ("row", run), Watched(Row(self._reading, run), run))
        return True

    async def _join_feed(self, reader: Reader, after: int | None, is_only: bool) -> None:
        changes = ChangedRuns(self._reading)
        number = await self._reading.store.runs.change_number()
        # A number that was never given belongs to a database that is no more: begin anew.
        if after is None or after > number:
            snapshot = await changes.snapshot(number)
            reader.put(Batch([snapshot]))
            self._touched.add(reader)
            after = number
        await self._join(reader, "feed", changes, after, is_only)

    async def _join(self, reader: Reader, key: object, topic: Topic, after: int, is_only: bool) -> None:
        line = self._lines.get(key)
        if line is None or after > line.cursor:
            seen = await self._see(topic.runs, topic.chats, with_number=key == "feed")
            end = topic.end(seen)
            if after > end:  # of another run of this name, or of a database that is no more
                raise InvalidInput(
                    f"the stream ends at {end}, and {after} was never in it; begin at {end} or before."
                )
            line = self._lines.setdefault(key, Line(topic, end))
            self._is_new = True
        if reader.is_closed:
            self._drop_line(key)
            return
        following = Following(reader, after, is_only=is_only)
        line.followers.add(following)
        self._of.setdefault(reader, set()).add(key)
        self._begin(self._catch_up(line, following))

    def _watch(self, reader: Reader, key: object, watched: Watched) -> None:
        if reader.is_closed:
            return
        watched, readers = self._watched.setdefault(key, (watched, {}))
        readers[reader] = watched.whole is not None
        self._of.setdefault(reader, set()).add(key)
        if watched.whole is not None:
            reader.put(Batch([watched.whole]))
            self._touched.add(reader)
        else:
            self._is_new = True
            self._poked.set()

    def leave(self, reader: Reader) -> None:
        """Tell a reader nothing more."""
        reader.is_closed = True
        for key in self._of.pop(reader, ()):
            if key in self._lines:
                line = self._lines[key]
                line.followers = {one for one in line.followers if one.reader is not reader}
                self._drop_line(key)
            elif key in self._watched:
                self._watched[key][1].pop(reader, None)
                if not self._watched[key][1]:
                    del self._watched[key]

    def _drop_line(self, key: object) -> None:
        line = self._lines.get(key)
        if line is not None and not line.followers:
            del self._lines[key]

    async def settled(self, run: str) -> None:
        """Return when a run is neither queued nor held by a living process, or is gone."""
        found = await self._reading.store.runs.heads([run])
        if not _is_going(found.get(run)):
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.setdefault(run, set()).add(waiting)
        self._is_new = True
        try:
            await waiting
        finally:
            left = self._waits.get(run)
            if left is not None:
                left.discard(waiting)
                if not left:
                    del self._waits[run]

    def poke(self) -> None:
        """Look now: something was written."""
        self._poked.set()

    @property
    def is_poked(self) -> bool:
        """Whether the next look is to come at once."""
        return self._poked.is_set()

    # -- looking ---------------------------------------------------------------------------------------

    async def begin(self) -> Hub:
        """Look from now on; returns the hub."""
        self._begin(self._run())
        return self

    def stop(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        never = asyncio.Event()
        while True:
            looked_s = self._clock.awake_s()
            await self._look_patiently()
            await self._clock.wait_s(TICK_S, self._poked)
            self._poked.clear()
            left_s = LEAST_S - (self._clock.awake_s() - looked_s)
            if left_s > 0:
                await self._clock.wait_s(left_s, never)

    async def _look_patiently(self) -> None:
        try:
            await self._look()
        except Exception as error:  # whatever it is, others still wait to be told
            if not self._is_failing:
                exc_info = None if isinstance(error, StoreError) else error
                log.warning("streams wait, because the database cannot be read: %s", error, exc_info=exc_info)
            self._is_failing = self._is_new = True
            await self._clock.wait_s(FAILED_S, asyncio.Event())
        else:
            self._is_failing = False
        self._wake()

    async def _look(self) -> None:
        if not (self._lines or self._watched or self._waits):
            return
        now_s = self._clock.awake_s()
        version = await self._reading.store.version()  # before the look: what comes between is seen again
        is_same = version is not None and version == self._version
        if not is_same or self._is_new or now_s >= self._anyway_s:
            self._is_new = False
            # Whoever comes while it is looked was not asked about: that a run was not seen says nothing then.
            lines = list(self._lines.values())
            self._asked, chats = self._wanted()
            self._seen = seen = await self._see(
                sorted(self._asked), sorted(chats), with_number="feed" in self._lines
            )
            self._version, self._anyway_s = version, now_s + ANYWAY_S
            advanced = await asyncio.gather(
                *(self._advance(line, seen) for line in lines), return_exceptions=True
            )
            if failed := next((one for one in advanced if isinstance(one, BaseException)), None):
                raise failed
            self._settle(seen)
            self._wake()
        await self._show(self._seen)

    def _wanted(self) -> tuple[set[str], set[str]]:
        """The runs and the chats of which a look must know."""
        runs = {run for line in self._lines.values() for run in line.topic.runs}
        runs.update(watched.run for watched, _ in self._watched.values())
        runs.update(self._waits)
        return runs, {chat for line in self._lines.values() for chat in line.topic.chats}

    async def _see(self, runs: Sequence[str], chats: Sequence[str], *, with_number: bool) -> Seen:
        """One look. The runs come first: when one has ended, all that it said is seen after it."""
        store = self._reading.store
        heads = await store.runs.heads(runs) if runs else {}
        positions = await store.messages.positions(chats) if chats else {}
        return Seen(heads, positions, await store.runs.change_number() if with_number else 0)

    async def _advance(self, line: Line, seen: Seen) -> None:
        """Read what is new, and give it to whoever is live; the others come to it by themselves."""
        topic, end = line.topic, line.topic.end(seen)
        try:
            while line.cursor < end:
                page = await topic.read(line.cursor)
                # All that this look has seen was there before it was read: a page with room left has it.
                line.cursor = page.upto if page.has_more else max(page.upto, end)
                self._spread(line, page.frames)
            if line.last is None:
                line.last = topic.last(seen)
        except UNREADABLE as error:
            log.warning("a stream ends, because it cannot be read: %s", error)
            line.last = _unreadable(error)
        if line.last is not None:
            self._end_live(line)

    def _spread(self, line: Line, frames: Sequence[Frame]) -> None:
        if not frames:
            return
        batch = Batch(frames)
        for one in line.followers:
            if one.is_live and one.give(batch):
                self._touched.add(one.reader)

    def _end_live(self, line: Line) -> None:
        """Tell those who have seen all of it that it is over."""
        assert line.last is not None
        for one in [one for one in line.followers if one.is_live]:
            one.end(line.last)
            self._touched.add(one.reader)
            line.followers.discard(one)
        if not line.followers:
            self._lines = {key: other for key, other in self._lines.items() if other is not line}

    async def _catch_up(self, line: Line, following: Following) -> None:
        """Give a reader its backlog, a page when it has taken the one before, until it is live.

        Where the line has come and what the reader has seen are compared with no pause in between. So
        whatever the line reads after that is given to it, and what it has seen already is dropped.
        """
        reader = following.reader
        try:
            while not reader.is_over and following.cursor < line.cursor:
                await self._room(reader)
                async with self._behind:
                    reached = line.cursor
                    page = await line.topic.read(following.cursor)
                following.cursor = page.upto if page.has_more else max(page.upto, reached)
                if page.frames:
                    reader.put_backlog(Batch(page.frames))
                    self._touched.add(reader)
                    self._wake()
            following.is_live = True
            if line.last is not None:
                self._end_live(line)
        except UNREADABLE as error:
            log.warning("a stream ends, because it cannot be read: %s", error)
            following.end(_unreadable(error))
        except StoreError:
            reader.finish(UNREACHABLE)
        self._touched.add(reader)
        self._wake()

    async def _room(self, reader: Reader) -> None:
        """Return when the connection has taken all that was put."""
        if reader.has_room:
            return
        loop, free = asyncio.get_running_loop(), asyncio.Event()

        def set_free() -> None:
            with contextlib.suppress(RuntimeError):  # the hub is closed
                loop.call_soon_threadsafe(free.set)

        reader.when_room(set_free)
        await free.wait()

    def _settle(self, seen: Seen) -> None:
        asked = [run for run in self._waits if run in self._asked]
        for run in [run for run in asked if not _is_going(seen.heads.get(run))]:
            for waiting in self._waits.pop(run):
                if not waiting.done():
                    waiting.set_result(None)

    async def _show(self, seen: Seen) -> None:
        """Fold what has moved again, as far as there is time; the rest has its turn at the next look."""
        began_s = self._clock.awake_s()
        for key, (watched, readers) in list(self._watched.items()):
            now_s, head = self._clock.awake_s(), seen.heads.get(watched.run)
            if now_s - began_s > SHOW_S_MAX:
                return
            if watched.run in self._asked and watched.is_due(head, now_s):
                news = await watched.read(head, now_s)
                watched.took(self._clock.awake_s() - now_s, self._clock.awake_s())
                self._tell(readers, watched, news)
            if watched.is_gone:
                self._watched.pop(key, None)

    def _tell(self, readers: dict[Reader, bool], watched: Watched, news: Frame | None) -> None:
        for reader, has_whole in readers.items():
            told = news if has_whole or watched.is_gone else watched.whole
            if told is not None:
                readers[reader] = True
                reader.put(Batch([told]))
                self._touched.add(reader)

    # -- waking ----------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wake(self) -> None:
        """Let all whose queue has something new look: one call for each loop, however many they are."""
        loops: dict[asyncio.AbstractEventLoop, list[Reader]] = {}
        for reader in self._touched:
            loops.setdefault(reader.loop, []).append(reader)
        self._touched.clear()
        for loop, readers in loops.items():
            with contextlib.suppress(RuntimeError):  # that server is closed
                loop.call_soon_threadsafe(_wake_all, readers)


def _wake_all(readers: Iterable[Reader]) -> None:
    for reader in readers:
        reader.wake()


def _is_going(head: RunHead | None) -> bool:
    """Whether a run is queued, or a living process works on it."""
    if head is None or head.status not in GOING:
        return False
    return head.status is RunStatus.QUEUED or head.holder is None or head.holder.is_alive


def _unreadable(error: OnwardError) -> Frame:
    return notice("end", {"reason": "unreadable", "detail": str(error)})

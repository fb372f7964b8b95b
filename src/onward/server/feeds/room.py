"""The addresses of streams: `/api/runs/{run}/events`, `/api/messages` and `/api/feed` as event streams,
and the socket `/api/live`.

`open_streams` starts the hub of a server; `follow` is for rooms with frames in their own words.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.websockets import WebSocket

from onward.errors import InvalidInput, RunNotFound
from onward.model.ids import RUN_ID_OWN
from onward.model.values import POSITION
from onward.operations.http import PREFIX, VIEWER
from onward.server.api import known_parameters
from onward.server.feeds.frames import Frame
from onward.server.feeds.socket import serve_live
from onward.server.feeds.sse import EventStream
from onward.server.feeds.streams import Connection, Streams
from onward.server.feeds.thread import HubThread
from onward.server.feeds.wants import Events, Feed, Messages, Rows, State, Want
from onward.server.place import STREAM, Asked, Mounted, Place, Socket
from onward.server.problems import Problem

if TYPE_CHECKING:
    from onward.server.context import Context
    from onward.server.credentials import Credentials

ROWS_MAX = 200
STREAMS = "streams"
"""The name of the streams in what the rooms of a server share."""


def places(context: Context) -> Sequence[Mounted]:
    """The streams and the socket."""
    return (
        Place(STREAM, f"{PREFIX}/runs/{{run}}/events", VIEWER, stream_events),
        Place(STREAM, f"{PREFIX}/messages", VIEWER, stream_messages),
        Place(STREAM, f"{PREFIX}/feed", VIEWER, stream_feed),
        Place("GET", f"{PREFIX}/feed", VIEWER, stream_feed),
        Socket(f"{PREFIX}/live", VIEWER, serve),
    )


def open_streams(context: Context, hub: HubThread) -> Streams:
    """The streams of a server, told by this hub; to be closed."""
    settings = context.settings
    found = Streams(
        hub,
        context.clock,
        each=settings.streams,
        most=settings.streams_all,
        draining=context.life.draining,
    )
    context.extra[STREAMS] = found
    return found


def streams_of(context: Context) -> Streams:
    """The streams of a server."""
    found: Streams | None = context.extra.get(STREAMS)
    if found is None:
        raise Problem(503, "no_streams", "this server has no live streams.")
    return found


def open_connection(asked: Asked) -> Connection:
    """A place for one more stream of whoever asks, to be closed."""
    credentials: Credentials = asked.context.extra["credentials"]
    who = asked.who
    return streams_of(asked.context).open(asked.owner, lambda: credentials.is_still_good(who))


class Told:
    """What one connection follows in this process, as frames."""

    def __init__(self, streams: Streams, connection: Connection) -> None:
        self._streams, self.connection = streams, connection

    async def follow(self, *wants: Want) -> None:
        """Follow this as well, from now on."""
        await self._streams.hub.follow(self.connection.reader, wants)

    async def frames(self) -> AsyncIterator[Sequence[Frame]]:
        """All frames that one look has found, and so on; the last is `bye`, `cut` or `denied`."""
        reader = self.connection.reader
        while not reader.is_closed:
            await reader.wait()
            batches, last = reader.take()
            found = [one for batch in batches for one in batch.frames]
            if last is not None:
                yield [*found, last]
                return
            if found:
                yield found


@contextlib.asynccontextmanager
async def follow(asked: Asked) -> AsyncIterator[Told]:
    """A stream for a room of its own words. It counts as any other, and ends as any other:

        async with follow(asked) as told:
            await told.follow(Feed(), Messages("c1", after=57))
            async for frames in told.frames():
                ...                                       # frame.stream, .event, .id, .value
                await told.follow(Events(run, after=0))   # more, when it is known what

    While it writes, it wraps each send in `told.connection.write`, so that one that stalls is noticed; when
    the other side hangs up, `told.connection.reader.close()` ends the frames.
    """
    connection = open_connection(asked)
    try:
        yield Told(streams_of(asked.context), connection)
    finally:
        connection.close()


async def stream_events(asked: Asked) -> Response:
    """What happens in a run; 204 where nothing more can come."""
    return await stream_run(asked, asked.path["run"])


async def stream_run(asked: Asked, run: str, *, dialect: bool = False) -> Response:
    """What happens in this run, as a stream; `dialect`: under the event names of the dialect."""
    return await _stream(asked, Events(exact(run), after_of(asked), dialect))


def after_of(asked: Asked) -> int:
    """The number after which the events of a run are wanted: `after`, or what a browser saw last."""
    return _cursor(asked, known_parameters(asked, ("after",))) or 0


async def stream_messages(asked: Asked) -> Response:
    """What is said in a chat or by a run."""
    given = known_parameters(asked, ("of", "after"))
    if "of" not in given:
        raise InvalidInput("`of` is missing; name the chat or the run whose messages you want.")
    return await _stream(asked, Messages(given["of"], _cursor(asked, given) or 0))


async def stream_feed(asked: Asked) -> Response:
    """Which runs changed."""
    given = known_parameters(asked, ("after",))
    return await _stream(asked, Feed(_cursor(asked, given)))


async def _stream(asked: Asked, want: Want) -> Response:
    connection = open_connection(asked)
    try:
        if not await streams_of(asked.context).hub.follow(connection.reader, (want,), is_only=True):
            connection.close()
            return Response(status_code=204)  # after which a browser does not come back
    except BaseException:
        connection.close()
        raise
    return EventStream(connection)


async def serve(asked: Asked, socket: WebSocket) -> None:
    """Follow over a WebSocket what its address says."""
    wants = live_wants(known_parameters(asked, LIVE))
    connection = open_connection(asked)
    try:
        await streams_of(asked.context).hub.follow(connection.reader, wants)
        await socket.accept()
    except BaseException:
        connection.close()
        raise
    await serve_live(connection, socket)


LIVE = ("feed", "run", "after", "of", "position", "runs")


def live_wants(given: Mapping[str, str]) -> list[Want]:
    """What a live socket follows, by its address."""
    wants: list[Want] = []
    if "feed" in given:
        wants.append(Feed(_number(given, "feed") if given["feed"] else None))
    if "run" in given:
        run = exact(given["run"])
        wants.append(State(run))
        if "after" in given:
            wants.append(Events(run, _number(given, "after")))
    if "of" in given:
        wants.append(Messages(given["of"], _number(given, "position")))
    if "runs" in given:
        runs = tuple(dict.fromkeys(exact(run) for run in given["runs"].split(",") if run))
        if len(runs) > ROWS_MAX:
            raise InvalidInput(f"there are {len(runs)} runs; follow at most {ROWS_MAX}.")
        wants.append(Rows(runs))
    return wants


def exact(run: str) -> str:
    """The whole id of a run, which is all that HTTP takes for one."""
    if not RUN_ID_OWN.fullmatch(run):
        raise RunNotFound(run[:64])
    return run


def _cursor(asked: Asked, given: Mapping[str, str]) -> int | None:
    """Where to begin: what a browser saw last when it comes back, else what the address says."""
    last = asked.http.headers.get("last-event-id")
    if last:
        return _number({"Last-Event-ID": last}, "Last-Event-ID")
    return _number(given, "after") if "after" in given else None


def _number(given: Mapping[str, str], name: str) -> int:
    text = given.get(name, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise InvalidInput(f"{name} is not a whole number of at least 0.")
    return POSITION.check(int(text), name)

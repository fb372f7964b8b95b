"""`onward serve`: the API, the page and a worker, in one process."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from onward.cli.commands.workers import DRAINING, Watch
from onward.cli.operations import (
    app_of,
    courier_of,
    is_file,
    machine_token,
    open_to_read,
    own_files,
    token_place,
    write_line,
)
from onward.cli.options import COMMON, Common, LogFormat, Out, number
from onward.cli.output import FAILED, FINE
from onward.cli.signals import Force, on_signals
from onward.clock import SystemClock, SystemIds, new_secret
from onward.config import CONFIG_FILE, chosen_token, load_settings
from onward.engine.stop import StopSwitch
from onward.machine.plan.planner import DRAIN
from onward.model.settings import DEFAULT_CHATS
from onward.model.values import CONCURRENCY, PORT
from onward.operations.local.access import Access
from onward.operations.local.operations import LocalOperations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onward.cli.output import Output
    from onward.cli.replies import WorkerDone
    from onward.engine.engine import Engine
    from onward.model.events import Event
    from onward.model.run import Run
    from onward.notify.courier import Courier
    from onward.operations.protocol import Operations
    from onward.server.context import Context
    from onward.server.feeds.streams import Streams
    from onward.server.feeds.thread import HubThread
    from onward.server.hosts import Hosts
    from onward.server.life import Listener
    from onward.server.reading import Reader
    from onward.server.settings import ServeSettings
    from onward.store.port.store import Store
    from onward.worker import Shift


async def serve(
    *,
    host: Annotated[str | None, Parameter(help="The address to listen on (127.0.0.1).")] = None,
    port: Annotated[int | None, number(PORT, help="The port to listen on (8765).")] = None,
    public_url: Annotated[
        str | None,
        Parameter(help="The public address of the server behind a proxy, such as https://host/onward."),
    ] = None,
    no_worker: Annotated[bool, Parameter(help="Do not execute runs here; other workers do.")] = False,
    concurrency: Annotated[
        int | None, number(CONCURRENCY, help="How many runs to execute at once (4).")
    ] = None,
    tls_cert: Annotated[str | None, Parameter(help="The TLS certificate.", metavar="FILE")] = None,
    tls_key: Annotated[
        str | None, Parameter(help="The private key of the certificate.", metavar="FILE")
    ] = None,
    insecure_http: Annotated[
        bool, Parameter(help="Let other machines connect without TLS: tokens can be read in transit.")
    ] = False,
    allow_shell: Annotated[
        bool, Parameter(help="Let pipelines sent over HTTP run commands on this machine.")
    ] = False,
    log_format: LogFormat = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Serve the API and the web page, and execute runs, until stopped by a signal.

    Prints a one-time link to sign in with a browser. Programs send a token; the token of this machine is in a
    file next to the database. On SIGTERM or Ctrl-C the server accepts no new work and lets each step finish;
    a second signal stops it at once. Any number of servers may share one PostgreSQL database.
    """
    from onward.server.life import bound, check_bind, check_files
    from onward.server.settings import read_serve

    settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
    flags: dict[str, Any] = {
        "host": host,
        "port": port,
        "public_url": public_url,
        "concurrency": concurrency,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    given |= {"worker": False} if no_worker else {}
    given |= {"insecure_http": True} if insecure_http else {}
    given |= {"shell": True} if allow_shell else {}
    how = read_serve(settings.serve, given, file=CONFIG_FILE)
    chosen = chosen_token()
    check_bind(how, chosen)
    check_files(own_files(settings))
    with bound(how) as sock:
        how = msgspec.structs.replace(how, port=sock.getsockname()[1])
        return await _Serving(
            common, out, how, chosen, Watch(metrics=None, log_format=log_format, out=out, is_counting=True)
        ).run(sock)


class _Serving:
    """One server, from its engine to its end."""

    def __init__(
        self, common: Common, out: Output, how: ServeSettings, chosen: str | None, watch: Watch
    ) -> None:
        self._common, self._out, self._how, self._chosen, self._watch = common, out, how, chosen, watch
        self._settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
        self._stop = StopSwitch(self._settings.grace_s)
        self._courier: Courier | None = None
        self._hub: HubThread | None = None
        self._clock = SystemClock()

    async def run(self, sock: Any) -> int:
        """Open what there is, recover, serve, and drain."""
        app = app_of(self._settings)
        self._out.redactor = app.redactor
        try:
            engine = await self._watch.engine(app, self._settings.tool_env, self._observe)
            self._courier = courier_of(
                app, engine.store, self._settings, warn=self._watch.warn, stop=self._stop
            )
            async with nullcontext() if self._courier is None else self._courier.at_work():
                shift = await self._served(engine, sock, app.store)
        finally:
            await app.close()
        left = shift.left_behind
        self._out.say(f"server stopped{f'; runs cut off: {left}' if left else ''}")
        if self._out.is_json:
            done: WorkerDone = {"driven": shift.executed, "left_behind": left}
            self._out.value(done)
        return FAILED if left else FINE

    async def _served(self, engine: Engine, sock: Any, place: str | Store) -> Shift:
        from onward.server.app import make_app
        from onward.server.context import Context
        from onward.server.feeds.room import open_streams
        from onward.server.feeds.streams import limit_buffers
        from onward.server.hosts import hosts_of
        from onward.server.life import listener, recover

        chats = self._settings.chats or DEFAULT_CHATS
        operations = LocalOperations(engine, self._clock, chats)
        hosts = hosts_of(self._how, self._how.port)
        reader = await self._reader(engine, operations, place)
        context = Context(
            operations=operations,
            reader=reader,
            store=engine.store,
            clock=self._clock,
            ids=SystemIds(),
            settings=self._how,
        )
        figures = self._watch.pages(engine.store)
        context.extra["metrics"], context.extra["fault"] = figures, self._watch.fault
        limit_buffers(sock)
        self._hub = await self._begun(engine, operations, place)
        streams = open_streams(context, self._hub)
        server = listener(make_app(context, hosts), self._how)
        link = await self._link(engine, hosts)
        write_line(token_place(self._settings, "server"), hosts.url)
        try:
            await recover(operations, None if self._watch.is_logging else self._out.say)
            return await self._lived(context, server, sock, engine, streams, f"{hosts.url} · sign in: {link}")
        finally:
            await figures.aclose()
            await streams.close()
            await reader.close()

    async def _lived(
        self, context: Context, server: Listener, sock: Any, engine: Engine, streams: Streams, at: str
    ) -> Shift:
        from onward.server.life import live
        from onward.server.tidying import keep_tidy

        tidying = asyncio.create_task(keep_tidy(context), name="onward tidying")
        try:
            with on_signals(self._asked, Force(self._settings.grace_s, FAILED)):
                return await live(
                    context,
                    server,
                    sock,
                    work=lambda: self._work(engine),
                    stop=self._stop,
                    opened=lambda: self._out.say(f"Onward is at {at}"),
                    until_left=streams.until_left,
                )
        finally:
            tidying.cancel()
            await asyncio.gather(tidying, return_exceptions=True)

    async def _reader(self, engine: Engine, operations: LocalOperations, place: str | Store) -> Reader:
        """Reads go to a second store, unless the database cannot be opened twice."""
        from onward.server.reading import LoopReader, ThreadReader

        chats = self._settings.chats or DEFAULT_CHATS
        if not isinstance(place, str) or place == ":memory:":
            return LoopReader(operations)

        def build(store: Store) -> Operations:
            return LocalOperations(engine.beside(store), self._clock, chats)

        here = operations if is_file(place) else None  # the connections to a server belong to the worker
        return ThreadReader(await open_to_read(place, build), here=here, clock=self._clock)

    async def _begun(self, engine: Engine, operations: LocalOperations, place: str | Store) -> HubThread:
        """What looks for changes has a third store, so that a long read holds up no stream."""
        from onward.server.feeds.hub import Hub
        from onward.server.feeds.thread import HubThread
        from onward.server.feeds.topics import Reading

        clock = self._clock
        if not isinstance(place, str) or place == ":memory:":
            reading = Reading(engine.store, operations.look, operations.lists)
            return HubThread(await Hub(reading, clock).begin(), clock=clock)

        def build(store: Store) -> Hub:
            beside = LocalOperations(engine.beside(store), clock)
            return Hub(Reading(store, beside.look, beside.lists), clock)

        return await HubThread.start(await open_to_read(place, build), clock)

    async def _work(self, engine: Engine) -> Shift:
        from onward.chats.dispatch import Dispatcher
        from onward.worker import Shift, Worker

        if not self._how.worker:
            await self._sweep(engine)
            return Shift(0, 0)
        worker = Worker(
            engine,
            self._clock,
            self._stop,
            concurrency=self._how.concurrency,
            say=self._out.say,
            warn=self._watch.warn,
            metrics=self._watch.metrics,
            chats=Dispatcher(engine, self._clock, self._settings.chats or DEFAULT_CHATS),
        )
        return await worker.run()

    async def _sweep(self, engine: Engine) -> None:
        """Look for runs of dead processes, as a worker does."""
        news = asyncio.Event()
        self._stop.listen(news.set)
        while self._stop.reason is None:
            await engine.sweep()
            await self._clock.wait_s(1.0, news)

    async def _link(self, engine: Engine, hosts: Hosts) -> str:
        """A link that signs in once, with the token of this machine."""
        access = Access(engine.store, self._clock, SystemIds(), new_secret)
        code = await access.make_code(await machine_token(self._settings, access))
        return f"{hosts.url}/sign-in#{code}"

    def _asked(self) -> None:
        if self._stop.reason is None:
            self._out.say(DRAINING)
            self._watch.drain()
        self._stop.request(DRAIN)

    def _observe(self, run: Run, events: Sequence[Event]) -> None:
        if self._courier is not None:
            self._courier.observe(run, events)
        if self._hub is not None:
            self._hub.poke()

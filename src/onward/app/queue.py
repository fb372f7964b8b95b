"""An app and the queue: runs are left to workers, found, followed and awaited, and workers are embedded."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from onward.app.registrations import AppWithPipelines
from onward.chats.dispatch import Dispatcher
from onward.clock import SystemClock
from onward.engine.control.requests import StartRequest
from onward.engine.stop import GRACE_S
from onward.errors import InvalidInput, OnwardError, RefusedInList
from onward.model.context import check_given
from onward.model.run import Run, RunStatus, Simulation
from onward.model.values import instant_of, shown
from onward.operations.here.submission import directory_of
from onward.operations.local.chats import shown_message
from onward.operations.local.look import wait_stopped
from onward.operations.local.operations import LocalOperations
from onward.operations.local.submit import start_of
from onward.operations.requests import ListRuns, ReadEvents, ReadMessages, SendMessage, SubmitRun
from onward.pipeline.build import Pipeline
from onward.replies.chats import MessagePiece, MessageSent, MessageShown
from onward.replies.runs import RunList
from onward.replies.steps import EventShown
from onward.worker import EmbeddedWorker

if TYPE_CHECKING:
    from onward.flows.define import Bound


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One of many runs that are submitted together, with its own values.

    `run_id` is an id of the caller's own. With a `key` instead, the same submission again finds the run that
    the first one created. `at`: when the run is due. `tags` are added to those of all.
    """

    inputs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    run_id: str | None = None
    key: str | None = None
    tags: Sequence[str] = ()
    priority: int | None = None
    at: datetime | None = None


class HowSubmitted(TypedDict, total=False):
    """How runs are submitted.

    `tags`: words to find the run by. `priority`: runs with a higher number are taken first. `exclusive_key`:
    of the runs with one key, one is executed at a time. `on_owner_loss`: when its worker dies, another one
    continues (requeue) or a person decides (interrupt). `simulate`, `real_tools`: as for `run`. `workdir`:
    where its commands work; only workers that have this directory take the run. `chat`, `project`: as for
    `run`.
    """

    tags: Sequence[str]
    priority: int
    exclusive_key: str | None
    on_owner_loss: str
    simulate: bool | Mapping[str, Any]
    real_tools: bool
    chat: str | None
    project: str | None
    workdir: str | None
    workspace: str | None
    workspace_mode: str | None
    keep_workspace: bool


class HowScheduled(HowSubmitted, total=False):
    """How one run is submitted: also its inputs, and an id or a key of its own."""

    inputs: Mapping[str, Any] | None
    run_id: str | None
    key: str | None


class HowSent(TypedDict, total=False):
    """What is said about a message.

    `key`: the same message again under this key is sent once. `fresh` supersedes a run that stopped or is
    under way, `resume` continues one that stopped whatever the settings say. `project`, `pipeline` (NAME or
    NAME@VERSION) and `workdir` are those of the run that it may start.
    """

    by: str
    key: str | None
    fresh: bool
    resume: bool
    project: str | None
    pipeline: str | None
    workdir: str | None


class AppWithQueue(AppWithPipelines):
    """An app that leaves runs to workers."""

    async def submit(
        self,
        pipeline: str | Pipeline | Bound[Any],
        *,
        inputs: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        key: str | None = None,
        at: datetime | None = None,
        **how: Unpack[HowSubmitted],
    ) -> Run:
        """Create a run of a pipeline (a path, a registered name, one from `pipeline()`, or a flow with its
        arguments, `build.bind(…)`) for the workers.

        Returns it as it is queued. `key`: the same call again finds the run that the first one created. `at`:
        when the run is due, a time with its zone. The other keywords are those of `HowSubmitted`.
        """
        engine, prepared = await self.engine(), await self._prepared(pipeline)
        one = Submission(inputs=inputs_of(pipeline, inputs), run_id=run_id, key=key, at=at)
        request = _request(_source(pipeline, prepared), one, **how)
        return (await engine.submit(prepared, start_of(request))).run

    async def submit_many(
        self,
        pipeline: str | Pipeline,
        runs: Iterable[Submission | Mapping[str, Any]],
        **how: Unpack[HowSubmitted],
    ) -> builtins.list[Run]:
        """Create many runs of a pipeline and leave them to the workers; returns them in the same order.

        Each is a mapping, its inputs, or a `Submission`. The keywords are those of `submit`, for all. All are
        checked before the first is created (RefusedInList names the one that is invalid), and many share one
        transaction. If the database fails halfway, those with a key can be submitted again.
        """
        engine, prepared = await self.engine(), await self._prepared(pipeline)
        asked: builtins.list[tuple[Pipeline, StartRequest]] = []
        source = _source(pipeline, prepared)
        for number, given in enumerate(runs):
            one = given if isinstance(given, Submission) else Submission(inputs=given)
            try:
                asked.append((prepared, start_of(_request(source, one, **how))))
            except OnwardError as error:
                raise RefusedInList(number, error) from error
        return [folded.run for folded in await engine.submit_many(asked)]

    async def schedule_at(
        self, pipeline: str | Pipeline | Bound[Any], at: datetime, **how: Unpack[HowScheduled]
    ) -> Run:
        """Create a run that is due at a time, by the database's clock; the keywords are those of `submit`."""
        return await self.submit(pipeline, at=at, **how)

    async def list(
        self,
        *,
        statuses: Iterable[RunStatus | str] = (),
        reasons: Iterable[str] = (),
        pipeline: str | None = None,
        parent: str | None = None,
        text: str | None = None,
        tags: Iterable[str] = (),
        cursor: str | None = None,
        limit: int = 50,
    ) -> RunList:
        """Runs that every filter lets through, newest first, as `onward status --json` shows them.

        `tags`: runs that have all of them. The reply has `runs` and the `cursor` of the next page, or None.
        """
        request = ListRuns(
            statuses=tuple(map(_status, statuses)),
            reasons=tuple(reasons),
            pipeline=pipeline,
            parent=parent,
            text=text,
            tags=tuple(tags),
            cursor=cursor,
            limit=limit,
        )
        return await (await self._operations()).lists.list_runs(request)

    async def events(self, run: str, *, after: int = 0, follow: bool = False) -> AsyncGenerator[EventShown]:
        """A run's log after event `after`, one event at a time, as `onward events --json` shows them.

        `follow`: also new events of any process, until the run has ended.
        """
        request = ReadEvents(run=run, after=after, follow=follow)
        async for event in (await self._operations()).look.read_events(request):
            yield event

    async def messages(
        self, of: str, *, after: int = 0, follow: bool = False
    ) -> AsyncGenerator[MessagePiece]:
        """The messages of a run's models, or of a chat, after position `after`.

        In pieces, as `onward messages --json` shows them. `follow`: also new messages until the run has
        stopped. Whoever continues after the last position it saw misses nothing.
        """
        request = ReadMessages(of=of, after=after, follow=follow)
        async for piece in (await self._operations()).messages.read_messages(request):
            yield piece

    async def say(self, chat: str, text: str) -> MessageShown:
        """Store a user's message in a chat, before anything acts on it; `messages` shows it."""
        engine = await self.engine()
        said = await engine.say(chat, text)
        return shown_message(said, await engine.store.messages.content(said.id) or ())

    async def send(self, chat: str, text: str, **how: Unpack[HowSent]) -> MessageSent:
        """Send a user's message: a stopped run of the chat is resumed, or one of a registered name starts.

        Returns what became of it. The message is stored before that, and done once under the same `key`.
        """
        return await (await self._operations()).chats.send_message(SendMessage(chat=chat, text=text, **how))

    async def wait(self, run: str | Run, *, timeout: float | None = None) -> Run:
        """Wait until a run stops, whichever process executes it; returns its state.

        It stops at its end, at a gate, or because it failed, was paused or was interrupted. After `timeout`
        seconds StillGoing is raised, which is also a TimeoutError; the run continues.
        """
        # Unlike asyncio.timeout around it, this says which run is late and what it is doing.
        wanted = run if isinstance(run, str) else run.id
        return (await wait_stopped(await self.engine(), SystemClock(), wanted, timeout)).run

    def worker(
        self, *, concurrency: int = 4, grace_s: float = GRACE_S, until_idle: bool = False
    ) -> EmbeddedWorker:
        """A worker in this process: `async with app.worker():` executes queued runs while the block runs.

        At the end of the block each step gets `grace_s` to finish, and the runs go back to the queue.
        """
        return EmbeddedWorker(
            self.engine,
            SystemClock(),
            concurrency=concurrency,
            grace_s=grace_s,
            until_idle=until_idle,
            chats=lambda engine: Dispatcher(engine, SystemClock(), self.chat_settings),
        )

    async def _operations(self) -> LocalOperations:
        return LocalOperations(await self.engine(), SystemClock(), self.chat_settings)


def inputs_of(given: str | Pipeline | Bound[Any], inputs: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The inputs of a run: a flow has its own."""
    if isinstance(given, str | Pipeline):
        return inputs or {}
    if inputs:
        raise InvalidInput("a flow is bound to its arguments already; leave out inputs=.")
    return given.inputs


def checked_key(key: object) -> str | None:
    """The key of a request, if it can be one. Under an empty one, two requests would be the same."""
    if key is None or (isinstance(key, str) and key):
        return key
    raise InvalidInput(f"key={key!r} cannot be a key; give text that is not empty, such as 'order-17'.")


def _source(given: str | Pipeline | Bound[Any], prepared: Pipeline) -> dict[str, str | None]:
    """What is asked for: a name stays a name, so that a repeated request is the same whatever is enabled."""
    if isinstance(given, str) and prepared.version is not None:
        return {"pipeline": given}
    return {"source": prepared.source, "path": prepared.path}


def _request(
    pipeline: Mapping[str, Any],
    one: Submission,
    *,
    simulate: bool | Mapping[str, Any] = False,
    real_tools: bool = False,
    workdir: str | None = None,
    tags: Sequence[str] = (),
    priority: int = 0,
    **how: Any,
) -> SubmitRun:
    """What is asked of the operations; a keyword that is none of `submit` is refused as Python does."""
    check_given(one.inputs)
    simulation = simulation_of(simulate, real_tools)
    return SubmitRun(
        **pipeline,
        inputs=dict(one.inputs),
        run_id=one.run_id,
        key=checked_key(one.key),
        simulation=None if simulation is None else dict(simulation.script),
        real_tools=real_tools,
        tags=(*tags, *one.tags),
        priority=priority if one.priority is None else one.priority,
        wake_at_us=None if one.at is None else _instant(one.at),
        workdir=None if workdir is None else directory_of(workdir, is_here=False),
        **how,
    )


def _instant(at: datetime) -> int:
    try:
        return instant_of(at)
    except (ValueError, AttributeError) as error:
        raise InvalidInput(f"at is {shown(at)}, which is not {error}.") from None


def _status(status: RunStatus | str) -> RunStatus:
    try:
        return RunStatus(status)
    except ValueError:
        raise InvalidInput(f"{status!r} is not a status; use one of {', '.join(RunStatus)}.") from None


def simulation_of(simulate: bool | Mapping[str, Any], real_tools: bool) -> Simulation | None:
    """What is simulated: nothing, everything, or what a script says."""
    if simulate is False:
        return None
    return Simulation(script={} if simulate is True else dict(simulate), real_tools=real_tools)

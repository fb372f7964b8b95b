"""Rows: what is kept beside logs, so that runs, open questions and workers are found without them.

Every column of a run, a gate or a call is a function of the log, written in the same transaction as the
event that changed it.

Notifications, which people and programs outside get, are written with the events that cause them, too: one
says how the run stood then. Its body is a closed schema: `Facts`, as JSON.

Workers are in the database as they registered themselves. To take a run, a process must have its handlers,
by their names, and its working directory: the run's needs. They are stored as one text, separated by
spaces, so a need has none. `waiting_for` says what a queued run needs that no live worker has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, TypeVar
from urllib.parse import quote, unquote

import msgspec
from blake3 import blake3

from onward.model.call import Reserved, Streamed, Usage
from onward.model.gate import Choice, content_hash
from onward.model.run import DEAD_END, Frozen, RunStatus

T = TypeVar("T")
FIXED = msgspec.Meta(extra={"is_fixed": True})
Fixed = Annotated[T, FIXED]
"""A column that a run is created with and keeps. The others are written whenever its row is."""


class RunRow(Frozen, frozen=True, kw_only=True):
    """One run, as lists show it. `owner` names its holder; only a running run has one.

    `doubtful` is an open step that must not be repeated: if the holder died, it is in doubt. `parent` is
    the run that a fork came from, `managed_by` and `managed_step` are the run and the step that manage this
    run, and `restart_of` and `restarted_as` are the runs before and after it in a chain of restarts.
    `tags` is as `tag_column` writes it. `chat` is the conversation that the run was given, if it was. `ticks`
    is as `machine.ticks` writes it; empty: the run ended before rows had it.

    Each field is a column of table `run`. This is the only list of them: the stores and their SQL make theirs
    from it. A new column is a field here, its value in `machine.fold.rows`, and a migration of each database.
    If every step changes it, `Write` and `run_advance` have it, too.
    """

    id: Fixed[str]
    display_id: Fixed[str]
    pipeline: Fixed[str]
    pipeline_hash: str
    path: Fixed[str | None]
    status: RunStatus
    reason: str
    detail: str
    recoverable: bool
    next_node: str | None
    doubtful: str | None
    steps_finished: int
    token: int
    owner: str | None
    wake_at_us: int | None
    exclusive_key: Fixed[str | None]
    on_owner_loss: Fixed[str]
    priority: Fixed[int]
    needs: str
    max_running: Fixed[int | None]
    parent: Fixed[str | None]
    parent_seq: Fixed[int | None]
    managed_by: Fixed[str | None]
    managed_step: Fixed[str | None]
    restart_of: Fixed[str | None]
    restarted_as: str | None
    tags: Fixed[str]
    chat: Fixed[str | None]
    is_dismissed: bool
    tokens: int
    cost_micro: int
    ticks: str
    created_at_us: Fixed[int]
    updated_at_us: int
    ended_at_us: int | None
    head: int

    @property
    def ended_at_node(self) -> str | None:
        """The node without edges at which a completed run ended; None if it reached the exit."""
        return self.detail if self.reason == DEAD_END else None


class GateRow(Frozen, frozen=True, kw_only=True):
    """One question that a run has asked. It is open until `closed_at_us`.

    `decided_by` says who or which rule decided it; one that was closed and not decided was withdrawn. A fork
    asks anew what was open where it came off; older questions are in the rows of its parent.
    """

    run_id: str
    gate: str
    pipeline: str
    node: str
    text: str
    about: str
    type: str
    choices: tuple[Choice, ...]
    opened_at_us: int
    deadline_us: int | None
    decided_by: str | None = None
    closed_at_us: int | None = None

    @property
    def content_hash(self) -> str:
        """The hash of the question and its choices."""
        return content_hash(
            gate=self.gate,
            node=self.node,
            type=self.type,
            text=self.text,
            about=self.about,
            choices=self.choices,
        )


class MessageState(StrEnum):
    """How a message stands: its text grows, it is whole, its call failed, or its call was lost."""

    STREAMING = "streaming"
    COMPLETE = "complete"
    ERROR = "error"
    INTERRUPTED = "interrupted"


class CallOpened(Frozen, frozen=True, kw_only=True):
    """A call has begun that reserves what it may cost, or whose text is stored while it grows."""

    step: str
    call: str
    number: int
    model: str = ""
    reserved: Reserved | None = None
    streamed: Streamed | None = None

    @property
    def is_reserved(self) -> bool:
        return self.reserved is not None

    @property
    def is_streamed(self) -> bool:
        return self.streamed is not None


class CallClosed(Frozen, frozen=True, kw_only=True):
    """Such a call has ended: its reservation is settled, and its message has its last state.

    `is_unknown`: what it cost is not known, because it was lost, or says so, or says what cannot be; it is
    charged what it reserved.
    One that failed and has no `usage` cost nothing. `said` is the hash of the text of its message; None: it
    is sealed later.
    """

    step: str
    call: str
    number: int
    state: MessageState
    is_reserved: bool
    is_streamed: bool
    model: str = ""
    usage: Usage | None = None
    cost_micro: int | None = None
    is_unknown: bool = False
    said: str | None = None


CallRow = CallOpened | CallClosed
"""What a call does to the tables of limits and messages; written with its event."""


# -- what people and programs outside are told, and what becomes of telling them ------------------------
FACTS_VERSION = 1
ID_BYTES = 16


class NotificationKind(StrEnum):
    """What happened: a gate was opened, a run stopped and can continue or not, or it ended for good."""

    GATE = "gate"
    STOPPED = "stopped"
    FINISHED = "finished"


class DeliveryState(StrEnum):
    """Whether a notification is still to be delivered, is delivered, or was given up."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


class Notification(Frozen, frozen=True, kw_only=True):
    """Something to tell, caused by event `seq` of a run. `body` is JSON. The id is the same however often
    it is delivered, so a receiver can leave out what it has had."""

    id: str
    run_id: str
    seq: int
    kind: NotificationKind
    at_us: int
    body: str


Telling = Callable[[], Iterable[Notification]]
"""Makes notifications, for a store that has somebody to tell: often nobody has subscribed."""


class GateFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question: its choices, what it is about, and until when it is open."""

    gate: str
    node: str
    type: str
    text: str
    about: str
    choices: tuple[Choice, ...]
    deadline: str | None


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a notification. `next` is the command to type next, if there is one."""

    version: int = FACTS_VERSION
    id: str
    event: NotificationKind
    at: str
    run: str
    display_id: str
    pipeline: str
    status: str
    reason: str
    detail: str
    recoverable: bool
    seq: int
    gate: GateFacts | None
    next: str | None


def notification_id(run_id: str, seq: int, subject: str) -> str:
    """The id of what event `seq` tells of `subject`: in every process and at every delivery the same."""
    return blake3(f"{run_id}|{seq}|{subject}".encode()).hexdigest(ID_BYTES)


def kinds_text(kinds: Sequence[NotificationKind]) -> str:
    """Kinds as a column has them, each between two blanks."""
    return f" {' '.join(kind.value for kind in NotificationKind if kind in kinds)} "


# -- workers, and what runs need of them ------------------------------------------------------------------
_DIRECTORY = "dir:"
_A_DIRECTORY = f"{_DIRECTORY}/"


def directory_need(workdir: str) -> str:
    """The need for a directory."""
    return _DIRECTORY + "".join(quote(sign) if sign.isspace() or sign == "%" else sign for sign in workdir)


def needed_directory(need: str) -> str | None:
    """The directory that is needed; None if the need is a handler."""
    return unquote(need.removeprefix(_DIRECTORY)) if need.startswith(_A_DIRECTORY) else None


def with_directory(needs: Iterable[str], workdir: str | None) -> tuple[str, ...]:
    """The handlers among the needs, and this directory. A run that needs no handler works nowhere."""
    handlers = tuple([need for need in needs if not need.startswith(_A_DIRECTORY)])
    return (*handlers, directory_need(workdir)) if workdir is not None and handlers else handlers


def handlers_missing(needs: Iterable[str], kinds: Collection[str]) -> list[str]:
    """The handlers that a process with these `kinds` lacks."""
    return [need for need in needs if need not in kinds and not need.startswith(_A_DIRECTORY)]


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


AGENTS = "codergen"
"""The handler of agent steps, which a process has as soon as one provider of models is set up."""


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
        """A sentence for people at a terminal."""
        return self.lack if self.workers else f"{self.lack}; start one with `onward worker`"

    @property
    def lack(self) -> str:
        """What is missing, in words that also fit on a page: they name no command to type."""
        if not self.workers:
            return "no worker is running"
        if self.directory is not None:
            return f"no live worker has the directory {self.directory}"
        names = ", ".join(map(repr, self.handlers))
        if self.is_split:
            return f"no live worker has all of the handlers {names}"
        if self.handlers == (AGENTS,):
            return "no live worker has a model provider, which the agent steps need: set its API key there"
        handlers = "handler" if len(self.handlers) == 1 else "handlers"
        return f"no live worker has the {handlers} {names}: start one with --app"


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

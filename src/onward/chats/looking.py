"""A chat as a message finds it: its turn, and its runs that have not ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from onward.chats.decide import ChatRun
from onward.chats.settings import ChatSettings
from onward.engine.engine import Engine
from onward.errors import HistoryCorrupt, RunNotFound, StoreCorrupt
from onward.machine.decide.owner_loss import REQUEUE
from onward.machine.lifecycle import is_recoverable
from onward.machine.plan.route import unfinished_required
from onward.model.chat import READING_TAG, Intake, IntakeState
from onward.model.run import Run, RunStatus
from onward.model.values import tags_in
from onward.store.port.runs import Listed, RunQuery

log = logging.getLogger("onward.chats")
LOOKED_AT_MAX = 20
"""How many runs of a chat are looked at, the newest first."""
PAGE = 100
WAITING_MAX = 1_000
UNENDED = tuple(status for status in RunStatus if status not in (RunStatus.COMPLETED, RunStatus.CANCELLED))


class ChatSeen(msgspec.Struct, frozen=True):
    """A chat: its turn, what waits in it, and its runs, newest first. They were read in this order.

    A message that has begun a run since the turn was read has moved the turn; one that had begun it before is
    `starting`, or its run is among the runs. So no run is started beside another.
    """

    turn: int
    project: str
    waiting: Sequence[Intake]
    runs: Sequence[ChatRun]

    @property
    def starting(self) -> Intake | None:
        """A message whose run has an id, and may not be created yet."""
        return next((one for one in self.waiting if one.state is IntakeState.STARTING), None)


class Looking(msgspec.Struct, frozen=True):
    """Looks at chats through one engine."""

    engine: Engine
    settings: ChatSettings

    async def look(self, chat: str) -> ChatSeen:
        """The chat as it is. What a dead process held is stopped or queued first, as its policy says."""
        row = await self.engine.store.intakes.find_chat(chat)
        waiting = await self.engine.store.intakes.list(chat, is_open=True, limit=WAITING_MAX)
        listed = await runs_of(self.engine, chat)
        if any(one.holder is not None and not one.holder.is_alive for one in listed):
            await self.engine.sweep()
            listed = await runs_of(self.engine, chat)
        runs = [await self._run(one) for one in listed]
        turn, project = (0, "") if row is None else (row.turn, row.project)
        return ChatSeen(turn, project, waiting, [run for run in runs if run is not None])

    async def _run(self, listed: Listed) -> ChatRun | None:
        try:
            folded = await self.engine.journal.load(listed.row.id)
            run = folded.run
            if run.is_final:
                return None  # it has ended since it was listed
            definition = self.engine.definition(await self.engine.sources.stored(run))
        except RunNotFound:
            return None  # it was collected since
        except (HistoryCorrupt, StoreCorrupt) as error:
            log.warning("run %s of chat %s cannot be read: %s", listed.row.id, listed.row.chat, error)
            # No message continues it; but while it is said to be under way, none starts a run beside it.
            return ChatRun(listed.row.id, listed.row.status, listed.row.head, recoverable=False)
        # A sweep may have failed, or not have come yet: what it would interrupt can be resumed at once.
        is_lost = run.status is RunStatus.RUNNING and not self.engine.is_at_work(folded)
        is_lost = is_lost and run.on_owner_loss != REQUEUE
        return ChatRun(
            run.id,
            RunStatus.INTERRUPTED if is_lost else run.status,
            folded.position.seq,
            recoverable=is_lost or is_recoverable(run.status, run.reason),
            is_dismissed=run.is_dismissed,
            is_leaving=run.pending.cancel_by is not None,
            on_message=definition.on_message or self.settings.on_message,
            while_running=definition.while_running,
            gates=tuple(gate for gate in run.gates.values() if gate.decided is None),
            missing=unfinished_required(definition, run),
        )


async def runs_of(engine: Engine, chat: str, statuses: tuple[RunStatus, ...] = UNENDED) -> Sequence[Listed]:
    """The runs that do the work of a chat, newest first: not those that their steps manage, however many."""
    found: list[Listed] = []
    after: str | None = None
    while len(found) < LOOKED_AT_MAX:
        page = await engine.store.runs.list(RunQuery(chat=chat, statuses=statuses, limit=PAGE, after=after))
        found += [one for one in page if _does_work(one)]
        if len(page) < PAGE:
            break
        after = page[-1].cursor
    return found[:LOOKED_AT_MAX]


def _does_work(listed: Listed) -> bool:
    return listed.row.managed_by is None and READING_TAG not in tags_in(listed.row.tags)


def is_work_of_chat(run: Run) -> bool:
    """Whether a run does the work of a chat that it was given."""
    return run.chat is not None and run.managed_by is None and READING_TAG not in run.tags

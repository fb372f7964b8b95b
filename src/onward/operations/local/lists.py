"""Lists over all runs and notifications, from the rows of a store.

`onward status` must be quick, so this imports little, and no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from onward.errors import HistoryCorrupt, NotificationNotFound, StoreCorrupt
from onward.machine.fold.steps import FINISHED_MAX
from onward.model.ids import display_id
from onward.model.row import DeliveryState, GateRow, RegisteredWorker, RunRow
from onward.model.run import RunStatus
from onward.operations import requests
from onward.read.lookup import completed_of, find_run, list_runs
from onward.read.view import instant, view_choice, view_gate, view_row
from onward.store.owner import owner_label
from onward.store.port import runs as port
from onward.store.port.store import Store

if TYPE_CHECKING:
    from onward.model.run import Run
    from onward.replies import runs as run_shapes
    from onward.replies.database import NotificationList, NotificationShown, Stats, WorkerListed


CANDIDATES_MAX = 10
SHORT_LOG = 200


class LocalLists(msgspec.Struct, frozen=True):
    """Looks over the runs of one store."""

    store: Store

    async def list_runs(self, request: requests.ListRuns) -> run_shapes.RunList:
        """Runs, each as `onward show` tells it."""
        found = await self._found(request)
        # Whether a worker can take them is asked only if some are queued.
        is_asked = any(one.row.status is RunStatus.QUEUED for one in found)
        workers = await self.store.workers.read() if is_asked else ()
        runs = [await self._listed(one, workers, completed=request.completed) for one in found]
        is_full = request.run is request.find is None and found and len(found) == request.limit
        cursor = found[-1].cursor if is_full else None
        return {"runs": runs, "older": await self._older(request, len(runs)), "cursor": cursor}

    async def _found(self, request: requests.ListRuns) -> Sequence[port.Listed]:
        if request.run is not None:
            return [await find_run(self.store.runs, request.run)]
        if request.find is not None:
            return (await self.store.runs.find(request.find))[:CANDIDATES_MAX]
        query = port.RunQuery(
            request.statuses,
            request.pipeline,
            request.limit,
            reasons=request.reasons,
            parent=request.parent,
            text=request.text,
            after=request.cursor,
            tags=request.tags,
            chat=request.chat,
            since_us=None if request.since is None else requests.since_us(request.since),
        )
        return await list_runs(self.store.runs, query)

    async def _older(self, request: requests.ListRuns, listed: int) -> int:
        if not request.older or request.is_filtered or listed < request.limit:
            return 0
        return sum((await self.store.runs.count()).values()) - listed

    async def _listed(
        self, listed: port.Listed, workers: Sequence[RegisteredWorker], *, completed: bool
    ) -> run_shapes.RunListed:
        finished = await self._finished(listed.row) if completed else None
        return view_row(listed.row, listed.holder, finished, workers=workers)

    async def _finished(self, row: RunRow) -> Sequence[str]:
        """The newest steps that finished: of a short log from the log, which needs none of the engine.

        So are those of a run that cannot be folded; the others are listed all the same.
        """
        if row.head > SHORT_LOG:
            with suppress(HistoryCorrupt, StoreCorrupt):
                return (await self._run(row.id)).finished
        return (await completed_of(self.store.log, row.id))[-FINISHED_MAX:]

    async def list_gates(self, request: requests.ListGates) -> run_shapes.GateList:
        """The inbox: open questions, oldest first. One query."""
        run_id = None if request.run is None else (await find_run(self.store.runs, request.run)).row.id
        query = port.GateQuery(
            request.pipeline, after=request.cursor, limit=request.limit, run_id=run_id, chat=request.chat
        )
        found = await self.store.gates.open(query)
        cursor = port.gate_cursor(found[-1]) if found and len(found) == request.limit else None
        return {"gates": [view_gate_row(row) for row in found], "cursor": cursor}

    async def run_gates(self, request: requests.RunGates) -> list[run_shapes.GateShown]:
        """What one run waits for, with all that is known of each question."""
        run = await self._run((await find_run(self.store.runs, request.run)).row.id)
        return [view_gate(gate) for gate in run.gates.values() if gate.decided is None]

    async def run_limit(self, request: requests.GetRun) -> run_shapes.LimitStop | None:
        """The limit that stopped a run, and what to raise; None if none did."""
        from onward.clock import SystemClock
        from onward.operations.local.look import limit_stop

        run = await self._run((await find_run(self.store.runs, request.run)).row.id)
        return await limit_stop(self.store, run, SystemClock().now_us())

    async def list_workers(self, request: requests.ListWorkers) -> list[WorkerListed]:
        """The workers, idle or not, and the other processes that hold runs; and whether they are alive."""
        found = {worker.owner: _view_worker(worker) for worker in await self.store.workers.read()}
        for listed in await self.store.runs.held():
            if listed.holder is not None:
                owner, is_alive = listed.holder.owner, listed.holder.is_alive
                known = found.setdefault(owner, _view_holder(owner, is_alive))
                known["runs"].append(listed.row.display_id)
        return list(found.values())

    async def get_stats(self, request: requests.GetStats) -> Stats:
        """A consistent snapshot: exact, and cheap however many runs have ended."""
        from onward.observe.figures import view_measured

        return view_measured(await self.store.measures.measure())

    async def _run(self, run_id: str) -> Run:
        from onward.clock import SystemClock
        from onward.engine.journal import Journal

        return (await Journal(self.store.log, SystemClock()).load(run_id)).run


def _view_holder(owner: str, is_alive: bool) -> WorkerListed:
    """A process that holds runs and is no worker: a run in the foreground, or a worker that is stopping."""
    return {
        "worker": owner_label(owner),
        "is_alive": is_alive,
        "runs": [],
        "handlers": None,
        "lacks": [],
        "concurrency": None,
        "started_at": None,
    }


def _view_worker(worker: RegisteredWorker) -> WorkerListed:
    return {
        **_view_holder(worker.owner, worker.is_alive),
        "handlers": list(worker.offer.handlers),
        "lacks": list(worker.offer.lacks),
        "concurrency": worker.offer.concurrency,
        "started_at": instant(worker.started_at_us),
    }


def view_gate_row(row: GateRow) -> run_shapes.GateListed:
    """An open question, as lists show it."""
    return {
        "run": row.run_id,
        "display_id": display_id(row.run_id),
        "pipeline": row.pipeline,
        "gate": row.gate,
        "node": row.node,
        "type": row.type,
        "text": row.text,
        "about": row.about,
        "choices": [view_choice(choice) for choice in row.choices],
        "content_hash": row.content_hash,
        "opened_at": instant(row.opened_at_us),
        "deadline": instant(row.deadline_us),
    }


class LocalNotifications(msgspec.Struct, frozen=True):
    """Looks at the outbox of one store, and asks for another try. Workers deliver."""

    store: Store

    async def list_notifications(self, request: requests.ListNotifications) -> NotificationList:
        """Notifications, newest first: of one run, or of all."""
        run_id = None if request.run is None else (await find_run(self.store.runs, request.run)).row.id
        state = None if request.state is None else DeliveryState(request.state)
        query = port.DeliveryQuery(run_id=run_id, state=state, after=request.cursor, limit=request.limit)
        found = await self.store.outbox.read(query)
        cursor = port.delivery_cursor(found[-1]) if found and len(found) == request.limit else None
        return {"notifications": [_view_delivery(one) for one in found], "cursor": cursor}

    async def retry_notification(self, request: requests.RetryNotification) -> NotificationList:
        """Let a notification be delivered again, whatever became of it."""
        found = await self.store.outbox.retry(request.id)
        if not found:
            raise NotificationNotFound(request.id)
        return {"notifications": [_view_delivery(one) for one in found], "cursor": None}


def _view_delivery(one: port.Delivery) -> NotificationShown:
    return {
        "id": one.id,
        "subscriber": one.subscriber,
        "run": one.run_id,
        "display_id": display_id(one.run_id),
        "seq": one.seq,
        "event": one.kind.value,
        "state": one.state.value,
        "tries": one.tries,
        "created_at": instant(one.created_at_us),
        "due_at": instant(one.due_at_us),
        "tried_at": instant(one.tried_at_us),
        "delivered_at": instant(one.delivered_at_us),
        "response": one.response,
        "error": one.error,
        "body": msgspec.json.decode(one.body),
    }

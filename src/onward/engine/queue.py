"""What workers look for: the run whose turn it is, and runs whose holder died.

A worker claims a run from the queue if it can serve it: if it has the run's handlers, and its directory is
on this machine. Every worker also sweeps, all the time: it takes over the runs whose holder is dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Collection, Container, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from onward.clock import Clock
from onward.engine.awaited import AwaitedRuns
from onward.engine.claims import Claims, Dropped
from onward.engine.journal import DecideRun, Journal
from onward.engine.log import Folded
from onward.engine.loop import Runner
from onward.engine.messages import MessageTidying
from onward.engine.stop import StopSwitch
from onward.errors import (
    LeaseLost,
    OnwardError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from onward.machine.decide.owner_loss import decide_loss
from onward.machine.decide.requests import decide_claim
from onward.model.events import Event, RunClaimed
from onward.model.row import GateRow, handlers_missing, needed_directory
from onward.model.run import Run, RunStatus
from onward.store.port.leases import Lease, Workers
from onward.store.port.log import TakeFilter
from onward.store.port.runs import GateQuery, Gates, Measures, Runs


class Unserved:
    """Remembers what runs of the queue needed and this process did not have.

    The handlers of a process do not change, but a directory may be created or mounted at any time.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds
        self._seen: dict[str, Run] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The handlers that this process has."""
        return tuple(sorted(self._kinds))

    @property
    def seen(self) -> Mapping[str, Run]:
        """The needs that were not met when this process last looked, each with a run that has them."""
        return self._seen

    @property
    def lacks(self) -> tuple[str, ...]:
        """The directories among them that this process does not have."""
        needs = {need for run in self._seen.values() for need in run.needs}
        directories = filter(None, map(needed_directory, needs))
        return tuple(sorted(directory for directory in directories if not os.path.isdir(directory)))

    def refuses(self, run: Run) -> bool:
        """Whether the run needs something that this process does not have; then it is remembered."""
        if self._has(run.needs):
            return False
        self._seen[" ".join(run.needs)] = run
        return True

    def now(self) -> tuple[str, ...]:
        """The needs that are still not met, as they are stored."""
        self._seen = {text: run for text, run in self._seen.items() if not self._has(run.needs)}
        return tuple(sorted(self._seen))

    def _has(self, needs: Collection[str]) -> bool:
        directories = filter(None, map(needed_directory, needs))
        return not handlers_missing(needs, self._kinds) and all(map(os.path.isdir, directories))


log = logging.getLogger("onward.worker")
SKIPPED_MAX = 1_000
SKIPPED_S_FIRST, SKIPPED_S_MAX = 1.0, 300.0
# An outage concerns all runs, so it must not make this one wait for long after it has passed.
OUTAGES, OUTAGE_S_MAX = (StoreUnavailable, StoreFull, StoreReadOnly), 10.0
WHY_MAX = 500


class _Skipped(msgspec.Struct, frozen=True):
    """A run that could not be claimed or executed, how often, and until when it is skipped."""

    failures: int
    until_s: float


class _Claiming:
    """One claim from the queue. If its reply is lost, the run may be held here without being executed."""

    def __init__(self, claim: DecideRun, dropped: Dropped) -> None:
        self._claim, self._dropped = claim, dropped
        self._lease: Lease | None = None

    def decided(self, current: Folded) -> Sequence[Event]:
        """What claims the run, if it can be claimed."""
        self._lease, events = None, self._claim(current)
        for claimed in (event for event in events if isinstance(event, RunClaimed)):
            self._lease = Lease(current.run.id, claimed.worker, claimed.token)
            self._dropped.keep(self._lease)
        return events

    def failed(self, error: BaseException) -> None:
        """Give back what may have been claimed: nothing of it was executed."""
        if self._lease is not None:
            self._dropped.drop(self._lease, error, is_unbegun=True)


class RunQueue:
    """Takes due runs. One that cannot be claimed, or executed, is skipped for a while, longer each time.

    `kinds` are the handlers that this process has; `runner` executes a run that was claimed until it stops.
    """

    def __init__(
        self,
        measures: Measures,
        journal: Journal,
        claims: Claims,
        clock: Clock,
        kinds: Collection[str],
        runner: Runner,
    ) -> None:
        self._measures, self._journal, self._claims, self._clock = measures, journal, claims, clock
        self.unserved, self._runner = Unserved(kinds), runner
        self._skipped: dict[str, _Skipped] = {}
        self._failures: list[tuple[str, str]] = []

    async def take(self, stop: StopSwitch) -> tuple[Folded, Awaitable[Folded]] | None:
        """Claim the run whose turn it is; returns it, and what to await to execute it until it stops."""
        claimed_s = self._clock.awake_s()
        folded = await self._claim_next()
        return None if folded is None else (folded, self._execute(folded, claimed_s, stop))

    async def _execute(self, folded: Folded, claimed_s: float, stop: StopSwitch) -> Folded:
        try:
            return await self._runner.run_from_queue(folded, claimed_s, stop)
        except (LeaseLost, StoreError):
            raise
        except Exception as error:
            self._skip(folded.run.id, error)
            raise

    async def _claim_next(self) -> Folded | None:
        """The run that this process holds now, or None when nothing that it can serve is due."""
        refused: set[str] = set()
        while True:
            claiming = _Claiming(self._claim, self._claims.dropped)
            try:
                folded = await self._journal.take(self._filter(), claiming.decided, self._skip)
            except (StoreError, asyncio.CancelledError) as error:
                claiming.failed(error)
                if isinstance(error, StoreError):
                    await self._note_failures()
                raise
            has_failed = await self._note_failures()
            if folded is not None and folded.run.status is RunStatus.RUNNING:
                self._skipped.pop(folded.run.id, None)
                return folded
            if folded is not None and folded.run.id in refused:
                self._skip(folded.run.id, _needs_unsaid(folded.run))
            elif folded is not None:
                refused.add(folded.run.id)  # because of what it needs, by which the next one is chosen
            elif not has_failed:
                return None

    def _claim(self, current: Folded) -> Sequence[Event]:
        """Claim the run, if this process has its handlers and its directory.

        It is due by the database's clock, which counts, even if this process's clock is slow.
        """
        if self.unserved.refuses(current.run):
            return ()
        holder_view = self._claims.holder_view(current)
        now_us = max(holder_view.now_us, current.run.wake_at_us or 0)
        return decide_claim(current.run, replace(holder_view, now_us=now_us))

    def _filter(self) -> TakeFilter:
        now_s = self._clock.awake_s()
        skipped = sorted(run_id for run_id, skip in self._skipped.items() if skip.until_s > now_s)
        return TakeFilter(self.unserved.now(), tuple(skipped))

    def _skip(self, run_id: str, error: Exception) -> None:
        """Leave a run to other workers for a while: other runs are waiting."""
        if len(self._skipped) >= SKIPPED_MAX:
            self._skipped.clear()
        before = self._skipped.get(run_id)
        failures = 1 if before is None else before.failures + 1
        most_s = OUTAGE_S_MAX if isinstance(error, OUTAGES) else SKIPPED_S_MAX
        wait_s = min(SKIPPED_S_FIRST * 2.0 ** min(failures - 1, 20), most_s)
        self._skipped[run_id] = _Skipped(failures, self._clock.awake_s() + wait_s)
        self._failures.append((run_id, (str(error) or type(error).__name__)[:WHY_MAX]))
        log.error("run %s is skipped for %g s: %s", run_id, wait_s, error, extra={"run": run_id})

    async def _note_failures(self) -> bool:
        """Note in the database what could not be claimed; returns whether there was any."""
        failed, self._failures = self._failures, []
        for run_id, why in failed:
            with contextlib.suppress(OnwardError):  # then the log of this process is the only place
                await self._measures.note_stuck(run_id, why)
        return bool(failed)


def _needs_unsaid(run: Run) -> StoreCorrupt:
    """That a run is found by a row which says less than its log."""
    return StoreCorrupt(
        f"its row does not list that it needs {' '.join(run.needs)}; `onward verify {run.id}` compares them."
    )


recovery_log = logging.getLogger("onward.recovery")
GATES_MAX = 10_000


class AskingRun(msgspec.Struct, frozen=True):
    """A run with open questions, and the names of its gates, oldest first."""

    id: str
    pipeline: str
    gates: tuple[str, ...]


class SweepResult(msgspec.Struct, frozen=True):
    """What one sweep found: runs that lost their holder, runs that cannot be handled, and open questions."""

    stopped: tuple[Run, ...] = ()
    requeued: tuple[Run, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    asking: tuple[AskingRun, ...] = ()


class Sweeper:
    """Takes over runs whose holder is dead. One bad run never keeps it from the others."""

    def __init__(
        self,
        runs: Runs,
        gates: Gates,
        workers: Workers,
        claims: Claims,
        messages: MessageTidying,
        awaited: AwaitedRuns,
    ) -> None:
        self._messages, self._awaited = messages, awaited
        self._runs, self._gates, self._workers, self._claims = runs, gates, workers, claims
        self._logged: dict[str, str] = {}

    async def sweep(self, *, restarted: Container[str] = ()) -> SweepResult:
        """Look at every held run once; stop or requeue those whose holder is dead, as their policies say.

        `restarted` are the owners whose end is a restart, and not a crash.
        """
        stopped: list[Run] = []
        requeued: list[Run] = []
        broken: list[tuple[str, str]] = []
        for listed in await self._runs.held():
            holder = listed.holder
            if holder is None or self._claims.is_alive(listed.row.id, holder):
                continue
            try:
                found = await self._take(listed.row.id, is_restart=holder.owner in restarted)
            except Exception as error:  # of any kind: the others are looked at all the same
                self._log_once(listed.row.id, f"could not be recovered: {error}")
                broken.append((listed.row.id, str(error)))
                continue
            if found is not None:
                (requeued if found.status is RunStatus.QUEUED else stopped).append(found)
        await self._awaited.sweep()
        await self._messages.tidy()
        return SweepResult(tuple(stopped), tuple(requeued), tuple(broken))

    async def recover(self) -> SweepResult:
        """A server's first sweep: it also reports which questions are still open, and logs what it found.

        A run that a server or worker held is found because a server restarted. Any other process was a
        command or a program, which did not restart, but died.
        """
        servers = frozenset(one.owner for one in await self._workers.read())
        swept = await self.sweep(restarted=servers)
        await self._workers.tidy()
        found = replace(swept, asking=_asking(await self._gates.open(GateQuery(limit=GATES_MAX))))
        _report(found)
        return found

    def _log_once(self, run_id: str, what: str) -> None:
        """Log it once: a worker sweeps every second, and a run may be broken for days."""
        if self._logged.get(run_id) != what:
            recovery_log.error("run %s %s", run_id, what, extra={"run": run_id})
            self._logged[run_id] = what

    async def _take(self, run_id: str, *, is_restart: bool) -> Run | None:
        reply = await self._claims.request(run_id, partial(decide_loss, is_restart=is_restart))
        return reply.folded.run if reply.events else None


def _asking(gates: Sequence[GateRow]) -> tuple[AskingRun, ...]:
    """The runs that these gates belong to, in the order of the oldest gate of each."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in gates:
        names.setdefault((row.run_id, row.pipeline), []).append(row.gate)
    return tuple(AskingRun(*run, tuple(found)) for run, found in names.items())


def _about(run: Run | AskingRun) -> dict[str, str]:
    """The fields of a log line about this run."""
    return {"run": run.id, "pipeline": run.pipeline}


def _report(found: SweepResult) -> None:
    """Log each run at info, then one line with the counts."""
    for run in (*found.stopped, *found.requeued):
        why = {"status": run.status.value, "reason": run.reason}
        recovery_log.info(
            "run %s: %s (%s)", run.id, run.status.value, run.detail or run.reason, extra=_about(run) | why
        )
    for asking in found.asking:
        gates = ", ".join(asking.gates)
        recovery_log.info(
            "run %s waits for an answer at %s", asking.id, gates, extra=_about(asking) | {"gates": gates}
        )
    recovery_log.info(
        "Recovery complete: %d workflows marked failed, %d approvals restored.",
        len(found.stopped),
        len(found.asking),
        extra={
            "interrupted": len(found.stopped),
            "requeued": len(found.requeued),
            "waiting": len(found.asking),
            "broken": len(found.broken),
        },
    )

"""Sweeping: finding runs whose holder died. Every worker does it, all the time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from onward.engine.lease.claims import Claims
from onward.engine.messages.tidying import MessageTidying
from onward.errors import OnwardError
from onward.machine.decide.owner_loss import decide_loss
from onward.model.row import GateRow
from onward.model.run import Run, RunStatus
from onward.store.port.leases import Workers
from onward.store.port.runs import GateQuery, Gates, Runs

log = logging.getLogger("onward.recovery")
GATES_MAX = 10_000


class Asking(msgspec.Struct, frozen=True):
    """A run with open questions, and the names of its gates, oldest first."""

    id: str
    pipeline: str
    gates: tuple[str, ...]


class Swept(msgspec.Struct, frozen=True):
    """What one sweep found: runs that lost their holder, runs that cannot be handled, and open questions."""

    stopped: tuple[Run, ...] = ()
    requeued: tuple[Run, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    asking: tuple[Asking, ...] = ()


class Sweeper:
    """Takes over runs whose holder is dead. One bad run never keeps it from the others."""

    def __init__(
        self, runs: Runs, gates: Gates, workers: Workers, claims: Claims, messages: MessageTidying
    ) -> None:
        self._messages = messages
        self._runs, self._gates, self._workers, self._claims = runs, gates, workers, claims
        self._logged: dict[str, str] = {}

    async def sweep(self, *, is_restart: bool = False) -> Swept:
        """Look at every held run once; stop or requeue those whose holder is dead, as their policies say."""
        stopped: list[Run] = []
        requeued: list[Run] = []
        broken: list[tuple[str, str]] = []
        for listed in await self._runs.held():
            holder = listed.holder
            if holder is None or self._claims.is_alive(listed.row.id, holder):
                continue
            try:
                found = await self._take(listed.row.id, is_restart)
            except OnwardError as error:
                self._log_once(listed.row.id, f"could not be recovered: {error}")
                broken.append((listed.row.id, str(error)))
                continue
            if found is not None:
                (requeued if found.status is RunStatus.QUEUED else stopped).append(found)
        await self._messages.tidy()
        return Swept(tuple(stopped), tuple(requeued), tuple(broken))

    async def recover(self) -> Swept:
        """A server's first sweep: it also reports which questions are still open, and logs what it found."""
        swept = await self.sweep(is_restart=True)
        await self._workers.tidy()
        found = replace(swept, asking=_asking(await self._gates.open(GateQuery(limit=GATES_MAX))))
        _report(found)
        return found

    def _log_once(self, run_id: str, what: str) -> None:
        """Log it once: a worker sweeps every second, and a run may be broken for days."""
        if self._logged.get(run_id) != what:
            log.error("run %s %s", run_id, what, extra={"run": run_id})
            self._logged[run_id] = what

    async def _take(self, run_id: str, is_restart: bool) -> Run | None:
        reply = await self._claims.request(run_id, partial(decide_loss, is_restart=is_restart))
        return reply.folded.run if reply.events else None


def _asking(gates: Sequence[GateRow]) -> tuple[Asking, ...]:
    """The runs that these gates belong to, in the order of the oldest gate of each."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in gates:
        names.setdefault((row.run_id, row.pipeline), []).append(row.gate)
    return tuple(Asking(*run, tuple(found)) for run, found in names.items())


def _about(run: Run | Asking) -> dict[str, str]:
    """The fields of a log line about this run."""
    return {"run": run.id, "pipeline": run.pipeline}


def _report(found: Swept) -> None:
    """Log each run at info, then one line with the counts."""
    for run in (*found.stopped, *found.requeued):
        why = {"status": run.status.value, "reason": run.reason}
        log.info(
            "run %s: %s (%s)", run.id, run.status.value, run.detail or run.reason, extra=_about(run) | why
        )
    for asking in found.asking:
        gates = ", ".join(asking.gates)
        log.info(
            "run %s waits for an answer at %s", asking.id, gates, extra=_about(asking) | {"gates": gates}
        )
    log.info(
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

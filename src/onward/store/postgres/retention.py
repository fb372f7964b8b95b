"""Forgetting runs in PostgreSQL: a batch is one trip, and so one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from onward.model.chats.message import chat_of_run
from onward.store import rows
from onward.store.port.retention import Expiry, Kin
from onward.store.postgres.link.binary import texts
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.statements import Call, call


class PostgresRetention:
    """Old runs of one PostgreSQL database."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        statuses = texts([status.value for status in expiry.statuses])
        asked = call("run_expired", statuses=statuses, before_us=expiry.before_us, keep=expiry.keep)
        return await self._kin(asked)

    async def attached(self) -> Sequence[Kin]:
        return await self._kin(call("run_attached"))

    async def _kin(self, asked: Call) -> Sequence[Kin]:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return [rows.kin_of(columns) for columns in found]

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        # What was asked over a connection that broke is asked again, so the answer is not which runs were
        # deleted but which are left.
        calls = [deletion for kin in runs for deletion in _deletions(kin)]
        calls += [call("scope_delete", id=id) for id in sorted(kin.id for kin in runs)]  # scopes after runs
        calls.append(call("run_remaining", ids=texts([kin.id for kin in runs])))
        *_, left = await self._connections.use(lambda wire: wire.run(*calls))
        remaining = {columns[0] for columns in left}
        return [kin.id for kin in runs if kin.id not in remaining]


def _deletions(kin: Kin) -> Sequence[Call]:
    first, behind = rows.keys_below(kin.id)
    return (
        call("run_delete", id=kin.id, head=kin.head),
        *(call(name, id=kin.id) for name in ("event_delete", "append_delete", "snapshot_delete")),
        call("effect_delete", id=kin.id, first=first, behind=behind),
        *(
            call(name, id=kin.id, chat=chat_of_run(kin.id))
            for name in ("chunk_delete", "message_delete", "chat_delete")
        ),
    )

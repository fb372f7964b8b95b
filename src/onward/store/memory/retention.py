"""Forgetting runs in memory: what `Retention` promises, in as few words as possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onward.model.chats.message import chat_of_run
from onward.store import rows
from onward.store.memory.limits import forget_limits
from onward.store.memory.runs import by_age
from onward.store.memory.state import State, StoredRun
from onward.store.port.retention import Expiry, Kin


class MemoryRetention:
    """Old runs of a database."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        runs = sorted(self._state.runs.values(), key=by_age)
        chosen = [run for run in runs if run.row.status in expiry.statuses]
        old = chosen[: max(0, len(chosen) - expiry.keep)]
        return _kin(run for run in old if run.row.updated_at_us < expiry.before_us)

    async def attached(self) -> Sequence[Kin]:
        every = _kin(self._state.runs.values())
        return [kin for kin in every if kin.parent is not None or not kin.is_final]

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        there = self._state.runs
        for kin in runs:
            run = there.get(kin.id)
            is_needed = any(other.row.parent == kin.id for other in there.values())
            if run is not None and run.row.head == kin.head and run.row.owner is None and not is_needed:
                del there[kin.id]
                forget_limits(self._state, kin.id)
                own = chat_of_run(kin.id)
                self._state.chats.pop(own, None)
                for id in [id for id, said in self._state.said.items() if said.message.chat == own]:
                    del self._state.said[id]
                first, behind = rows.keys_below(kin.id)
                for key in [key for key in self._state.effects if first <= key < behind]:
                    del self._state.effects[key]
                for place in [place for place, told in self._state.outbox.items() if told.run_id == kin.id]:
                    del self._state.outbox[place]
        return [kin.id for kin in runs if kin.id not in there]


def _kin(runs: Iterable[StoredRun]) -> list[Kin]:
    return [
        Kin(
            id=row.id,
            head=row.head,
            status=row.status,
            parent=row.parent,
            successor=row.restarted_as,
            manager=row.managed_by,
            restart_of=row.restart_of,
        )
        for row in (run.row for run in runs)
    ]

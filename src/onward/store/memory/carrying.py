"""Taking in runs of another database, into memory."""

from __future__ import annotations

from onward.store.memory.chats.messages import receive_messages
from onward.store.memory.log import MemoryLog, check_content
from onward.store.memory.state import State
from onward.store.port.carrying import Arrival
from onward.store.refusals import content_missing


class MemoryCarrying:
    """Runs that arrive at a database."""

    def __init__(self, state: State, log: MemoryLog) -> None:
        self._state, self._log = state, log

    async def receive(self, arrival: Arrival) -> None:
        write = arrival.write
        there = self._state.runs.get(write.run_id)
        if there is not None and there.has(write.head):
            return
        rest = [record for page in arrival.rest() for record in page]
        check_content(self._state, write, rest)
        if not arrival.message_content <= self._state.blobs.keys():
            raise content_missing(write.run_id)
        await self._log.create(write, arrival.append_id)
        self._state.runs[write.run_id].records.extend(rest)
        receive_messages(self._state, arrival.messages)
        for effect in arrival.effects:
            self._state.effects.setdefault(effect.key, (effect, 0))

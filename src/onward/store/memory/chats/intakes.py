"""What users' messages ask for, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from onward.model.chats.intake import Intake, IntakeState, Outcome
from onward.model.chats.message import RUN_CHATS, Message
from onward.model.chats.reading import READING_TAG
from onward.model.run import RunStatus
from onward.model.values.tags import tags_in
from onward.store.memory.chats.messages import receive_messages
from onward.store.memory.state import State
from onward.store.port.chats.intakes import FREE_MAX, ChatRow

AT_WORK = (RunStatus.QUEUED, RunStatus.RUNNING)
ENDED = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


class MemoryIntakes:
    """What the messages in the chats of a database ask for."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def put(self, message: Message, content: bytes, intake: Intake) -> Intake:
        state = self._state
        if intake.message not in state.intakes:
            assert message.content is not None
            state.put({message.content: content}, message.begun_at_us)
            receive_messages(state, [message])
            state.intakes[intake.message] = replace(intake, n=len(state.intakes) + 1)
            if intake.project and not state.chat_projects.get(intake.chat):
                state.chat_projects[intake.chat] = intake.project
        return state.intakes[intake.message]

    async def find(self, message: str) -> Intake | None:
        return self._state.intakes.get(message)

    async def list(self, chat: str, *, is_open: bool, limit: int) -> Sequence[Intake]:
        found = [one for one in self._state.intakes.values() if one.chat == chat]
        if is_open:
            return [one for one in found if one.state is not IntakeState.DONE][:limit]
        return found[-limit:]

    async def free(
        self, *, chat: str | None = None, after: int = 0, limit: int = FREE_MAX
    ) -> Sequence[Intake]:
        listed = (one for one in self._state.intakes.values() if one.n > after)
        still = [one for one in listed if one.state is not IntakeState.DONE]
        found = [one for one in still if chat in (None, one.chat) and not self._is_going(one.behind)]
        return found[:limit]

    def _is_going(self, run_id: str) -> bool:
        stored = self._state.runs.get(run_id)
        if stored is None or stored.row.is_dismissed or stored.row.status in ENDED:
            return False
        return READING_TAG not in tags_in(stored.row.tags) or stored.row.status in AT_WORK

    async def note(self, message: str, *, seen: str, behind: str, reading: str) -> bool:
        found = self._state.intakes.get(message)
        if found is None or found.reading != seen:
            return False
        return self._change(message, IntakeState.PENDING, behind=behind, reading=reading)

    async def begin(self, message: str, *, seen: str, turn: int, run_id: str, reading: str) -> bool:
        found = self._state.intakes.get(message)
        if found is None or found.reading != seen or self._state.turns.get(found.chat, 0) != turn:
            return False
        state = IntakeState.STARTING
        if not self._change(message, IntakeState.PENDING, state=state, run_id=run_id, reading=reading):
            return False
        self._state.turns[found.chat] = turn + 1
        return True

    async def settle(
        self, message: str, *, outcome: Outcome, run_id: str, notice: str, reading: str, at_us: int
    ) -> bool:
        found = self._state.intakes.get(message)
        if found is None or found.state is IntakeState.DONE:
            return False
        state = IntakeState.DONE
        done = {"state": state, "outcome": outcome, "run_id": run_id, "notice": notice, "done_at_us": at_us}
        return self._change(message, found.state, reading=reading or found.reading, **done)

    def _change(self, message: str, was: IntakeState, **changes: object) -> bool:
        found = self._state.intakes.get(message)
        if found is None or found.state is not was:
            return False
        self._state.intakes[message] = replace(found, **changes)
        return True

    async def find_chat(self, chat: str) -> ChatRow | None:
        return next((row for row in self._chats() if row.id == chat), None)

    async def list_chats(self, *, before: int | None, limit: int) -> Sequence[ChatRow]:
        named = [row for row in self._chats() if not row.id.startswith(RUN_CHATS)]
        return [row for row in reversed(named) if before is None or row.n < before][:limit]

    def _chats(self) -> Sequence[ChatRow]:
        state = self._state
        return [
            ChatRow(
                n=n,
                id=chat,
                project=state.chat_projects.get(chat, ""),
                title="",
                position=position,
                turn=state.turns.get(chat, 0),
                created_at_us=min(
                    s.message.begun_at_us for s in state.said.values() if s.message.chat == chat
                ),
            )
            for n, (chat, position) in enumerate(state.chats.items(), 1)
        ]

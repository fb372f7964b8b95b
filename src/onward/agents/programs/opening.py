"""What a program is told: at the beginning of a session, and with every turn."""

from __future__ import annotations

from dataclasses import dataclass

from onward.agents.model.request import AssistantMessage, Session, Text, UserMessage, user
from onward.agents.programs.program import Program
from onward.agents.step.contract import instructions
from onward.agents.step.setting import SYSTEM
from onward.agents.step.thread import Thread
from onward.handlers.port import StepContext

SUMMARY = "summary:high"
"""What a new session is shown of the run in place of one that it cannot continue."""
LEFT_CHARACTERS_SHOWN = 4_000
FOLLOW_UP = "The end of your answer cannot be used: "


@dataclass(frozen=True, slots=True)
class Opening:
    """Writes what a step says to its program. `cut` is an earlier turn that will never be answered."""

    step: StepContext
    program: Program
    cut: str = ""

    async def text(self, session: Session | None, *, is_later: bool) -> str:
        """What the step asks. A session that continues knows the past; one that begins is told of it.

        `is_later`: its thread has a conversation that this program cannot continue.
        """
        step = self.step
        if session is not None:
            past = "" if step.left is None else step.left.summary()
        else:
            past = await step.preamble(SUMMARY if is_later else "")
        told = [f"Instruction from the operator: {text}" for text in step.steering]
        return "\n\n".join(filter(None, (past, step.prompt, *told)))

    async def anew(self, thread: Thread) -> Thread:
        """The conversation with its last message replaced by one for a new session, which knows nothing."""
        parts = [await self.text(None, is_later=True)]
        own = _since_opening(thread)
        if own:
            parts.append("Your answer so far was:\n\n" + own[0])
            parts.append(own[1])
        again = Thread(thread.redactor)
        for message in thread.messages[:-1]:
            again.add(message)
        again.take_fresh()  # they are stored
        again.add(user("\n\n".join(parts)))
        return again

    async def sent(self, thread: Thread, call: str) -> str:
        """What goes to the program's standard input: the last message, what was cut off, and the contract."""
        said = _text(thread.messages[-1]) if thread.messages else ""
        partial = (await self.step.recorder.partial(call)).strip()
        if not partial and self.cut:
            partial = (await self.step.recorder.partial(self.cut)).strip() or "(nothing)"
        cut = ""
        if partial:
            cut = (
                "An earlier try of this turn was cut off. Its changes to files are still there: look at them "
                "first, and do not repeat what is done. The end of what it had said:\n\n"
                + partial[-LEFT_CHARACTERS_SHOWN:]
            )
        contract = instructions(self.step.graph.outgoing(self.step.node.id))
        return "\n\n".join(filter(None, (said, cut, SYSTEM, contract)))


def _since_opening(thread: Thread) -> tuple[str, str] | None:
    """The answer of this step that a follow-up speaks of, and the follow-up; None at the first turn."""
    if len(thread.messages) < 3 or not isinstance(thread.messages[-2], AssistantMessage):
        return None
    follow_up = _text(thread.messages[-1])
    return (_text(thread.messages[-2]), follow_up) if follow_up.startswith(FOLLOW_UP) else None


def _text(message: object) -> str:
    if not isinstance(message, UserMessage | AssistantMessage):
        return ""
    return "".join(part.text for part in message.parts if isinstance(part, Text))

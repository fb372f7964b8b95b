"""The handler of agent steps that a program works on. No turn that was answered is asked for twice.

stored conversation, or the prompt ──► turn m1 ──► answer ──► result
                                         ▲            │
                                         └────────────┘ its facts cannot be read: once more, in its session
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from onward.agents.model.failure import ModelFailed
from onward.agents.model.request import AssistantMessage, Session, user
from onward.agents.model.retries import HANDLING, GiveUp, after_failure
from onward.agents.prices import Prices
from onward.agents.programs.formats import Asked
from onward.agents.programs.opening import FOLLOW_UP, Opening
from onward.agents.programs.program import Program
from onward.agents.programs.result import read_turn
from onward.agents.programs.serving import Wanted, reservation, wanted_by
from onward.agents.programs.trouble import ProgramFailed
from onward.agents.programs.turn import RunsPrograms, Turn
from onward.agents.step.contract import Unreadable
from onward.agents.step.limits import end_of, hit_of
from onward.agents.step.thread import Thread, read_thread
from onward.clock import Clock, Dice
from onward.errors import LimitReached
from onward.handlers.calls import CallOptions
from onward.handlers.port import StepContext
from onward.handlers.shell.environment import step_environment
from onward.model.call import CallKind
from onward.model.result import Result
from onward.pipeline.graph import Node

TURNS_MAX = 3
WAIT_S_MAX = 5.0
"""A program that asks for a longer wait gets the run held: its worker executes others meanwhile."""


class ProgramHandler(msgspec.Struct, frozen=True):
    """Serves agent steps with programs. `variables` gives those of this process that a program may have."""

    programs: Mapping[str, Program]
    spawn: RunsPrograms
    prices: Prices
    clock: Clock
    dice: Dice
    variables: Callable[[tuple[str, ...]], Mapping[str, str]]
    cwd: str | None = None
    keeps_time: bool = False

    def check_node(self, node: Node) -> None:
        """Refuse a node whose program is not known or not here, before anything is asked."""
        wanted_by(node, self.programs, self.variables(()).get("PATH"))

    async def run(self, step: StepContext) -> Result:
        """Ask for a turn, and read the result from the answer; what was answered is not asked again."""
        wanted = wanted_by(step.node, self.programs)
        known = await step.recorder.past()
        definition = wanted.definition(step)
        if known.definition and known.definition != definition:
            return _changed(step)
        try:
            return await self._converse(step, wanted, definition, known.thread)
        except ModelFailed as failed:
            return _given_up(failed)

    async def _converse(self, step: StepContext, wanted: Wanted, definition: str, head: str) -> Result:
        """Go through the turns; those that were answered before are read from the log."""
        opening = Opening(step, wanted.program)
        thread: Thread | None = None
        follow_up = ""
        for number in range(1, TURNS_MAX + 1):
            if thread is None and not await step.recorder.has(f"m{number}"):
                thread = await self._thread(step, opening, head)
            if thread is not None and not thread.is_asking:
                thread.add(user(follow_up))
            answer, thread = await self._ask(step, wanted, definition, opening, thread, f"m{number}")
            if answer is None:  # a person continues the step, and does not say what came of this turn
                opening = replace(opening, cut=f"m{number}")
                continue
            try:
                return read_turn(answer, step.node.id)
            except Unreadable as unreadable:
                if follow_up or number == TURNS_MAX:
                    return Result.fail(f"the answer cannot be used: {unreadable}")
                follow_up = f"{FOLLOW_UP}{unreadable}. Answer again."
        return Result.fail("none of its turns has an answer", retryable=False)

    async def _thread(self, step: StepContext, opening: Opening, head: str) -> Thread:
        """The step's stored conversation; for a new step, that of its thread, and what it asks."""
        recorder = step.recorder
        if head:
            return await read_thread(recorder.content, head, step.redactor)
        earlier = recorder.thread_of(step.thread) if step.thread else ""
        before = await read_thread(recorder.content, earlier, step.redactor)
        session = session_of(before, opening.program)
        before.add(user(await opening.text(session, is_later=bool(before.messages))))
        return before

    async def _ask(
        self,
        step: StepContext,
        wanted: Wanted,
        definition: str,
        opening: Opening,
        thread: Thread | None,
        call: str,
    ) -> tuple[Any, Thread | None]:
        """The answer of one turn, asked for as often as its failures allow.

        Without a thread it was answered before. With one, this also returns the thread with the answer in it.
        """
        thread, tries = thread or Thread(step.redactor), 0
        session = session_of(thread, wanted.program)
        while True:
            tries += 1
            turn = self._turn(step, wanted, thread, session, await opening.sent(thread, call))
            options = self._options(step, wanted, definition, turn)
            try:
                answer = await step.recorder.call(call, turn.run, (), options)
                return answer, turn.continued
            except ProgramFailed as failed:
                if failed.is_session_lost and session is not None:
                    step.log(
                        f"the session {session.id} of {wanted.program.name} is lost; a new one begins "
                        f"with a summary of the run: {failed}"
                    )
                    thread, session = await opening.anew(thread), None
                    continue
                await self._wait(step, failed, tries)
            except LimitReached as reached:
                until_us = end_of(reached.scope, self.clock.now_us())
                await step.recorder.hold("limit", str(reached), until_us, hit_of(reached))

    def _turn(
        self, step: StepContext, wanted: Wanted, thread: Thread, session: Session | None, prompt: str
    ) -> Turn:
        program = wanted.program
        told = {
            "run": step.run_id,
            "step": step.step,
            "node": step.node.id,
            "attempt": step.attempt,
            "workspace": step.workspace,
            "labels": [edge.label for edge in step.graph.outgoing(step.node.id) if edge.label],
        }
        return Turn(
            step,
            program,
            Asked(prompt, "" if session is None else session.id, wanted.model, told),
            thread,
            session,
            self.spawn,
            {**self.variables(program.variables), **step_environment(step)},
            step.workspace or step.workdir or self.cwd,
            self.prices,
            self.clock,
        )

    def _options(self, step: StepContext, wanted: Wanted, definition: str, turn: Turn) -> CallOptions:
        return CallOptions(
            repeatable=step.node.repeatable,
            type=CallKind.PROGRAM.value,
            name=wanted.program.name,
            model=wanted.name,
            definition=definition,
            thread=turn.thread.head,
            nodes=turn.thread.take_fresh(),
            reserved=reservation(step, wanted, turn.asked.prompt, self.prices, self.clock.now_us()),
            chat=step.chat,
        )

    async def _wait(self, step: StepContext, failed: ProgramFailed, tries: int) -> None:
        """Wait until the turn can be asked for again; if it cannot be, raise the failure.

        One that had begun its work has changed files and cost money: the step fails, and its retries count.
        A rate limit waits in any case.
        """
        now_us = self.clock.now_us()
        then = after_failure(failed.failure, tries=tries, now_us=now_us, roll=self.dice.roll())
        is_held = HANDLING[failed.failure.kind].reason == "rate_limit"
        if isinstance(then, GiveUp) or (failed.has_worked and not is_held):
            raise failed
        wait_s = (then.at_us - now_us) / 1_000_000
        if wait_s > WAIT_S_MAX:
            await step.recorder.hold("rate_limit", str(failed), then.at_us)
        await step.recorder.wait_s(wait_s)


def session_of(thread: Thread, program: Program) -> Session | None:
    """The program's session that a conversation ends in; None if another program or a model answered last."""
    for message in reversed(thread.messages):
        if isinstance(message, AssistantMessage):
            session = message.session
            return session if session is not None and session.program == program.name else None
    return None


def _given_up(failed: ModelFailed) -> Result:
    """The answers so far are kept; a program that must be set up first stops the run."""
    reason = HANDLING[failed.failure.kind].reason
    stop = reason if reason.startswith("provider_") else ""
    return replace(Result.fail(str(failed), retryable=not stop), stop=stop, keeps_calls=True)


def _changed(step: StepContext) -> Result:
    why = f"what {step.node.id} asks has changed since it was asked first; "
    failed = Result.fail(f"{why}retry the step to ask anew, or resume with --original.", retryable=False)
    return replace(failed, stop="pipeline_error", keeps_calls=True)

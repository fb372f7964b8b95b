"""One turn of a program: from what it is asked to the answer as it is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from onward.agents.model.failure import FailureKind
from onward.agents.model.request import AssistantMessage, Session, Text
from onward.agents.model.stream import Usage
from onward.agents.prices import Prices, cost_micro
from onward.agents.programs.formats import Asked, input_of, reader_of, words_of
from onward.agents.programs.program import TEXT, Program
from onward.agents.programs.reading.pieces import Counted, Ended, Trouble
from onward.agents.programs.taking import Taking, storable
from onward.agents.programs.trouble import failed, missing, not_started
from onward.agents.step.asking import usage_of
from onward.agents.step.thread import Thread
from onward.clock import Clock, Deadline
from onward.errors import CannotExecute, SpawnFailed
from onward.handlers.calls import CallAnswer, TextSink
from onward.handlers.port import StepContext
from onward.process import CommandExit, Hear

STDERR_CHARACTERS = 2_000


class RunsPrograms(Protocol):
    """Runs programs without a shell."""

    async def run_program(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        stdin: bytes,
        deadline: Deadline,
        hear: Hear,
    ) -> CommandExit:
        """Run one to its end; nothing that it started is left then, nor after a cancellation."""
        ...


class Turn(msgspec.Struct):
    """Asks a program once. `continued` is the conversation with the answer in it.

    `before` is the session that the turn continues, if it continues one.
    """

    step: StepContext
    program: Program
    asked: Asked
    thread: Thread
    before: Session | None
    spawn: RunsPrograms
    environment: Mapping[str, str]
    cwd: str | None
    prices: Prices
    clock: Clock
    continued: Thread | None = None

    async def run(self, message: TextSink) -> CallAnswer:
        """The answer as it is recorded. ProgramFailed: there is none."""
        taking = Taking(self.step, reader_of(self.program, self.clock), message)
        with taking.listening():
            finished = await self._finished(taking)
        await message.ready()
        return self._answer(taking, self._ended(taking, finished))

    async def _finished(self, taking: Taking) -> CommandExit:
        try:
            return await self.spawn.run_program(
                words_of(self.program, self.asked),
                env=self.environment,
                cwd=self.cwd,
                stdin=input_of(self.program, self.asked),
                deadline=self.step.deadline,
                hear=taking.hear,
            )
        except CannotExecute as error:
            why = "was not found" if error.is_missing else "cannot be executed"
            raise not_started(self.program, missing(self.program, why), kind=FailureKind.REQUEST) from error
        except SpawnFailed as error:
            raise not_started(self.program, str(error), kind=FailureKind.TRANSIENT) from error

    def _ended(self, taking: Taking, finished: CommandExit) -> Ended:
        """What the turn ended with; an answer counts even if the program failed after it."""
        ended = taking.ended
        if ended is None and taking.trouble is None and self.program.format == TEXT:
            ended = Ended(taking.text) if finished.exit_code == 0 else None
        if ended is not None and (ended.text.strip() or ended.facts):
            return ended
        trouble = taking.trouble or _trouble(finished, is_empty=ended is not None)
        raise failed(
            self.program,
            trouble,
            now_us=self.clock.now_us(),
            exit_code=finished.exit_code,
            has_worked=taking.has_worked,
            model=taking.model or self.asked.model,
        )

    def _answer(self, taking: Taking, ended: Ended) -> CallAnswer:
        usage, total = self._usage(taking.counted)
        session = self._session(taking, total)
        thread = self.continued = Thread(self.thread.redactor, self.thread.head, self.thread.messages)
        text = storable(ended.text)
        thread.add(AssistantMessage((Text(text),), session))
        model = taking.model or self.asked.model
        value: dict[str, Any] = {"text": text, "thread": thread.head, "program": self.program.name}
        if session is not None:
            value["session"] = session.id
        if ended.facts:
            value["facts"] = dict(ended.facts)
        return CallAnswer(
            value,
            usage=None if usage is None else usage_of(usage),
            cost_micro=self._cost(taking.counted, usage, model),
            model=f"{self.program.name}:{model}" if model else self.program.name,
            thread=thread.head,
            nodes=thread.take_fresh(),
        )

    def _usage(self, counted: Counted | None) -> tuple[Usage | None, Usage | None]:
        """The tokens of this turn, and those of the session so far if that is what the program counts."""
        if counted is None:
            return None, None
        if not counted.is_total:
            return counted.usage, None
        return (counted.usage if self.before is None else _since(counted.usage, self.before)), counted.usage

    def _session(self, taking: Taking, total: Usage | None) -> Session | None:
        """The session that a later turn continues: as the program names it now, else as it did before."""
        name = taking.session or (self.before.id if self.before is not None else "")
        if not name:
            return None
        total = total or Usage()
        return Session(
            self.program.name, name, total.input, total.output, total.cached_input, total.reasoning
        )

    def _cost(self, counted: Counted | None, usage: Usage | None, model: str) -> int | None:
        """What the program says; else what the model's price makes of its tokens."""
        if counted is not None and counted.cost_micro is not None:
            return counted.cost_micro
        price = self.prices.find(f"{self.program.provider or self.program.name}:{model}") if model else None
        return None if usage is None or price is None else cost_micro(usage, price)


def _since(total: Usage, before: Session) -> Usage:
    """What a turn adds to a session. A session that counts less than before began to count anew."""
    if total.input < before.input or total.output < before.output:
        return total
    return Usage(
        input=total.input - before.input,
        output=total.output - before.output,
        cached_input=max(0, total.cached_input - before.cached),
        reasoning=max(0, total.reasoning - before.reasoning),
    )


def _trouble(finished: CommandExit, *, is_empty: bool) -> Trouble:
    """Why a program ended without an answer, as far as it can be seen from outside."""
    said = finished.stderr.strip()[-STDERR_CHARACTERS:]
    if is_empty:
        return Trouble("it answered nothing", FailureKind.EMPTY.value)
    if finished.signal is not None:
        return Trouble(f"it was ended by signal {finished.signal}", FailureKind.CUT.value)
    how = f"it ended without a result, with exit code {finished.exit_code}"
    return Trouble(f"{how}: {said}" if said else how)

"""The handler of agent steps that a program works on. No turn that was answered is asked for twice.

stored conversation, or the prompt ──► turn m1 ──► answer ──► result
                                         ▲            │
                                         └────────────┘ its facts cannot be read: once more, in its session

After the handler: `AgentSteps`, which gives a step to a program or to a model; which program a node wants,
and what one of its turns reserves; what a program is told, at the beginning of a session and with every
turn; and the result of a step from the recorded answer of a turn.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from blake3 import blake3

from onward.agents import model as llm
from onward.agents.prices import Prices, estimate_tokens
from onward.agents.programs.program import Program, ProgramFailed, TurnRequest, missing, model_of
from onward.agents.programs.turn import RunsPrograms, Turn
from onward.agents.step.contract import SYSTEM, UnreadableAnswer, first_words, instructions, read_answer
from onward.agents.step.conversation import Thread, end_of, hit_of, read_thread, told_history
from onward.clock import Clock, Dice
from onward.errors import InvalidInput, LimitReached, NoProvider
from onward.handlers.calls import CallOptions
from onward.handlers.port import RESPONSE_CHARACTERS, StepContext
from onward.handlers.shell import step_environment
from onward.machine.reasons import PIPELINE_ERROR
from onward.model.call import CallKind, Reserved
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
        except llm.ModelFailed as failed:
            return _given_up(failed)

    async def _converse(self, step: StepContext, wanted: WantedProgram, definition: str, head: str) -> Result:
        """Go through the turns; those that were answered before are read from the log."""
        opening = ProgramPrompt(step, wanted.program)
        thread: Thread | None = None
        follow_up = ""
        for number in range(1, TURNS_MAX + 1):
            if thread is None and not await step.recorder.has(f"m{number}"):
                thread = await self._thread(step, opening, head)
            if thread is not None and not thread.is_asking:
                thread.add(llm.user(follow_up))
            answer, thread = await self._ask(step, wanted, definition, opening, thread, f"m{number}")
            if answer is None:  # a person continues the step, and does not say what came of this turn
                opening = replace(opening, cut=f"m{number}")
                continue
            try:
                return read_turn(answer, step.node.id)
            except UnreadableAnswer as unreadable:
                if follow_up or number == TURNS_MAX:
                    return Result.fail(f"the response cannot be used: {unreadable}")
                follow_up = f"{FOLLOW_UP}{unreadable}. Answer again."
        return Result.fail("none of its turns has a response", retryable=False)

    async def _thread(self, step: StepContext, opening: ProgramPrompt, head: str) -> Thread:
        """The step's stored conversation; for a new step, that of its thread, and what it asks."""
        recorder = step.recorder
        if head:
            return await read_thread(recorder.content, head, step.redactor)
        earlier = recorder.thread_of(step.thread) if step.thread else ""
        before = await read_thread(recorder.content, earlier, step.redactor)
        session = session_of(before, opening.program)
        before.add(llm.user(await opening.text(session, is_later=bool(before.messages))))
        return before

    async def _ask(
        self,
        step: StepContext,
        wanted: WantedProgram,
        definition: str,
        opening: ProgramPrompt,
        thread: Thread | None,
        call: str,
    ) -> tuple[Any, Thread | None]:
        """The answer of one turn, asked for as often as its failures allow.

        Without a thread it was answered before. With one, this also returns the thread with the answer in it.
        """
        thread = thread or Thread(step.redactor)
        session = session_of(thread, wanted.program)
        while True:
            turn = self._turn(step, wanted, thread, session, await opening.sent(thread, call))
            options = self._options(step, wanted, definition, turn)
            try:
                answer = await step.recorder.call(call, turn.run, (), options)
                return answer, turn.continued
            except ProgramFailed as failed:
                if failed.is_session_lost and session is not None:
                    step.log(
                        f"the session {session.id} of {wanted.program.name} is lost; a new one starts with a "
                        f"summary of the run: {failed}"
                    )
                    thread, session = await opening.anew(thread), None
                    continue
                await self._wait(step, failed, call)
            except LimitReached as reached:
                until_us = end_of(reached.scope, self.clock.now_us())
                await step.recorder.hold("limit", str(reached), until_us, hit_of(reached))

    def _turn(
        self,
        step: StepContext,
        wanted: WantedProgram,
        thread: Thread,
        session: llm.ProgramSession | None,
        prompt: str,
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
            TurnRequest(prompt, "" if session is None else session.id, wanted.model, told),
            thread,
            session,
            self.spawn,
            {**self.variables(program.variables), **step_environment(step)},
            step.workspace or step.workdir or self.cwd,
            self.prices,
            self.clock,
        )

    def _options(self, step: StepContext, wanted: WantedProgram, definition: str, turn: Turn) -> CallOptions:
        return CallOptions(
            repeatable=step.node.repeatable,
            type=CallKind.PROGRAM.value,
            name=wanted.program.name,
            model=wanted.name,
            definition=definition,
            thread=turn.thread.head,
            nodes=turn.thread.take_fresh(),
            reserved=turn_reservation(step, wanted, turn.asked.prompt, self.prices, self.clock.now_us()),
            chat=step.chat,
        )

    async def _wait(self, step: StepContext, failed: ProgramFailed, call: str) -> None:
        """Wait until the turn can be asked for again; if it cannot be, raise the failure.

        One that had begun its work has changed files and cost money: the step fails, and its retries count.
        A rate limit waits in any case.
        """
        now_us, failures = self.clock.now_us(), await step.recorder.failures(call)
        tries = llm.tries_of(failed.failure, failures)
        then = llm.after_failure(failed.failure, tries=tries, now_us=now_us, roll=self.dice.roll())
        is_held = llm.HANDLING[failed.failure.kind].retry is llm.Retry.HOLD
        if isinstance(then, llm.GiveUp) and is_held:
            await step.recorder.hold("rate_limit", str(failed))
        if isinstance(then, llm.GiveUp) or (failed.has_worked and not is_held):
            raise failed
        wait_s = (then.at_us - now_us) / 1_000_000
        if wait_s > WAIT_S_MAX:
            await step.recorder.hold("rate_limit", str(failed), then.at_us)
        await step.recorder.wait_s(wait_s)


def session_of(thread: Thread, program: Program) -> llm.ProgramSession | None:
    """The program's session that a conversation ends in; None if another program or a model answered last."""
    for message in reversed(thread.messages):
        if isinstance(message, llm.AssistantMessage):
            session = message.session
            return session if session is not None and session.program == program.name else None
    return None


def _given_up(failed: llm.ModelFailed) -> Result:
    """The answers so far are kept; a program that must be set up first stops the run."""
    stop = llm.HANDLING[failed.failure.kind].stop
    return replace(Result.fail(str(failed), retryable=not stop), stop=stop, keeps_calls=True)


def _changed(step: StepContext) -> Result:
    why = f"the request of {step.node.id} has changed since it was first sent; "
    failed = Result.fail(f"{why}retry the step to send it again, or resume with --original.", retryable=False)
    return replace(failed, stop=PIPELINE_ERROR, keeps_calls=True)


class AsksModels(Protocol):
    """Serves agent steps with models."""

    def check_node(self, node: Node) -> None:
        """InvalidInput if it cannot serve the node."""
        ...

    async def run(self, step: StepContext) -> Result:
        """Run one attempt."""
        ...


class AgentSteps(msgspec.Struct, frozen=True):
    """Serves every agent step. Without `models`, no provider is set up, and only programs work."""

    models: AsksModels | None
    programs: ProgramHandler
    keeps_time: bool = False

    def check_node(self, node: Node) -> None:
        """Refuse a node that nobody can work on, before anything is asked."""
        self._of(node).check_node(node)

    async def run(self, step: StepContext) -> Result:
        """Let a program or a model work on the step."""
        return await self._of(step.node).run(step)

    def _of(self, node: Node) -> AsksModels:
        if node.text(PROGRAM_ATTRIBUTE):
            return self.programs
        if self.models is None:
            raise NoProvider(node.id)
        return self.models


PROGRAM_ATTRIBUTE = "agent_program"
COMMAND_PREFIX = "command:"


class WantedProgram(msgspec.Struct, frozen=True):
    """A program, and the model that it is told to ask; empty leaves that to the program."""

    program: Program
    model: str

    @property
    def name(self) -> str:
        """How calls name who answers."""
        return f"{self.program.name}:{self.model}" if self.model else self.program.name

    def definition(self, step: StepContext) -> str:
        """The hash of what the step is: its program, and what it asks."""
        contract = first_words(step.graph.outgoing(step.node.id))
        identity = f"program\0{self.program.name}\0{self.model}\0{step.node.instruction}\0{contract}"
        return blake3(identity.encode()).hexdigest()


def wanted_by(node: Node, programs: Mapping[str, Program], path: str | None = None) -> WantedProgram:
    """What a node wants; InvalidInput if nobody has it. With `path`, the program must be there."""
    name = node.text(PROGRAM_ATTRIBUTE)
    if name.startswith(COMMAND_PREFIX):
        command = name.removeprefix(COMMAND_PREFIX).split()
        raise InvalidInput(
            f"node {node.id!r} contains the command of its program, but a pipeline can only name programs. "
            f"Write command = {command} under [programs.NAME] in onward.toml, and agent_program=NAME here."
        )
    program = programs.get(name)
    if program is None:
        raise InvalidInput(
            f"node {node.id!r} uses the unknown program {name!r}; write one of "
            f"{', '.join(sorted(programs))}, or describe it under [programs.{name}] in onward.toml."
        )
    if "allowed_tools" in node.written:  # those of the graph are for its models
        raise InvalidInput(
            f"node {node.id!r} has allowed_tools, but the program {name} brings its own tools; limit them in "
            f"arguments of [programs.{name}] in onward.toml, and leave allowed_tools out."
        )
    if path is not None and not is_found(program, path):
        raise InvalidInput(f"node {node.id!r} needs it: {missing(program, 'was not found')}")
    return WantedProgram(
        program, model_of(program, node.id, model=node.llm_model, provider=node.llm_provider)
    )


def is_found(program: Program, path: str) -> bool:
    """Whether the program can be started, as far as its file tells."""
    return shutil.which(program.command[0], path=path) is not None


def turn_reservation(
    step: StepContext, wanted: WantedProgram, prompt: str, prices: Prices, now_us: int
) -> Reserved:
    """What a turn reserves: one call, and its prompt. What the program makes of it cannot be known before.

    A program whose cost will not be known may not begin under a limit on cost.
    """
    program = wanted.program
    price = prices.find(f"{program.provider or program.name}:{wanted.model}") if wanted.model else None
    is_priced = program.reports_cost or price is not None
    day = datetime.fromtimestamp(now_us / 1_000_000, UTC).date().isoformat()
    return Reserved(
        scopes=(*step.scopes, f"day/{day}"),
        tokens=max(1, estimate_tokens(llm.ModelRequest(model=wanted.name, messages=(llm.user(prompt),)))),
        cost_micro=1 if is_priced else 0,
        calls=1,
        is_priced=is_priced,
    )


NEW_SESSION_SUMMARY = "summary:high"
"""What a new session is shown of the run in place of one that it cannot continue."""
LEFT_CHARACTERS_SHOWN = 4_000
FOLLOW_UP = "The end of your answer cannot be used: "


@dataclass(frozen=True, slots=True)
class ProgramPrompt:
    """Writes what a step says to its program. `cut` is an earlier turn that will never be answered."""

    step: StepContext
    program: Program
    cut: str = ""

    async def text(self, session: llm.ProgramSession | None, *, is_later: bool) -> str:
        """What the step asks. A session that continues knows the past; one that begins is told of it.

        `is_later`: its thread has a conversation that this program cannot continue.
        """
        step = self.step
        said = ""
        if session is not None:
            past = "" if step.left is None else step.left.summary()
        else:
            past = await step.preamble(NEW_SESSION_SUMMARY if is_later else "")
            said = told_history(await step.chat_history())
        told = [f"Instruction from the operator: {text}" for text in step.steering]
        return "\n\n".join(filter(None, (past, said, step.prompt, *told)))

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
        again.add(llm.user("\n\n".join(parts)))
        return again

    async def sent(self, thread: Thread, call: str) -> str:
        """What goes to the program's standard input: the last message, what was cut off, and the contract."""
        said = _message_text(thread.messages[-1]) if thread.messages else ""
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
    if len(thread.messages) < 3 or not isinstance(thread.messages[-2], llm.AssistantMessage):
        return None
    follow_up = _message_text(thread.messages[-1])
    return (_message_text(thread.messages[-2]), follow_up) if follow_up.startswith(FOLLOW_UP) else None


def _message_text(message: object) -> str:
    if not isinstance(message, llm.UserMessage | llm.AssistantMessage):
        return ""
    return "".join(part.text for part in message.parts if isinstance(part, llm.Text))


def read_turn(answer: Any, node_id: str) -> Result:
    """The result that an answer means; Unreadable if its facts contradict the contract.

    Facts that the program gave apart count instead of lines in its text. A person who said what came of a
    turn in doubt may have said anything.
    """
    text, facts = _text_and_facts(answer)
    if isinstance(answer, dict) and isinstance(answer.get("unusable"), str):
        raise UnreadableAnswer(f"what it says about its step cannot be stored: {answer['unusable']}")
    if not facts:
        return read_answer(text, node_id)
    told = read_answer(f"```json\n{msgspec.json.encode(facts).decode()}\n```", node_id)
    shown = text[:RESPONSE_CHARACTERS]
    updates = {**told.context_updates}
    if not facts.get("context_updates", {}).get("last_response"):
        updates["last_response"] = shown
    is_failure = bool(told.failure_reason) or told.status.value in ("fail", "retry")
    reason = (told.failure_reason or shown) if is_failure else ""
    return replace(told, response=text, context_updates=updates, failure_reason=reason)


def _text_and_facts(answer: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(answer, dict) and isinstance(answer.get("text"), str):
        facts = answer.get("facts")
        return answer["text"], facts if isinstance(facts, dict) else {}
    return answer if isinstance(answer, str) else "" if answer is None else msgspec.json.encode(
        answer
    ).decode(), {}

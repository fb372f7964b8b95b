"""The handler of agent steps: ask a model until the step has a result. No answer is asked for twice.

conversation ──► ask m1 ──► answer ──► result
                   ▲           │
                   └───────────┘ tools to use, an answer cut off, facts that cannot be read (`rounds.py`)

A step whose fidelity asks for a summary of the run gets one from a model; without a model, rules make it.
The summary is a recorded request like any other, `m0`: a step that runs again has the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from onward.agents import model as llm
from onward.agents.prices import Prices
from onward.agents.step.asked import REPAIRS_MAX, read_asked, setup_asked, with_functions
from onward.agents.step.contract import (
    AllModels,
    StepSetup,
    check_partial,
    check_required,
    check_setup,
    schema_of,
    setup_of,
)
from onward.agents.step.conversation import (
    AgentRequest,
    Answered,
    OpenConversation,
    Talk,
    Thread,
    continued,
    end_of,
    hit_of,
    instructed,
    read_recorded,
    request_reservation,
    shortened_thread,
    with_room,
)
from onward.agents.step.rounds import Ask, Rounds, UseTools
from onward.agents.step.tool_uses import ToolUses, refuse
from onward.agents.tools.toolbox import OfferedTool, Toolbox
from onward.clock import Clock, Dice
from onward.errors import LimitReached, Refused
from onward.handlers.calls import CallOptions, StepPast
from onward.handlers.port import StepContext
from onward.machine.reasons import PIPELINE_ERROR
from onward.model.call import CallKind
from onward.model.chat import ChunkKind
from onward.model.result import Result
from onward.pipeline.graph import Node

WAIT_S_MAX = 5.0
"""A provider that asks for a longer wait gets the run held: its worker executes others meanwhile."""
NOT_CONTINUED = (llm.FailureKind.REQUEST, llm.FailureKind.EMPTY)
"""How a provider fails that does not take the beginning of an answer, or has nothing to add to it."""


class AgentHandler:
    """Serves agent steps with a model."""

    keeps_time = False

    def __init__(
        self,
        models: AllModels,
        prices: Prices,
        clock: Clock,
        dice: Dice,
        toolbox: Toolbox | None = None,
        *,
        summary_model: str | None = None,
    ) -> None:
        self._models, self._prices, self._clock, self._dice = models, prices, clock, dice
        self._toolbox, self._summary_model = toolbox or Toolbox(), summary_model

    def check_node(self, node: Node) -> None:
        """Refuse a node whose model no provider has or whose tools nobody offers, before a run begins."""
        model = self._models.full_name(node.llm_model, provider=node.llm_provider)
        check_partial(self._models, node, model)
        check_setup(node)
        self._toolbox.check_node(node)
        check_required(node, self._toolbox.allowed(node))
        schema_of(node)
        if self._summary_model is not None:
            self._models.full_name(self._summary_model)

    async def run(self, step: StepContext) -> Result:
        """Ask, and read the result from the answer; what was answered before is not asked again."""
        known = await step.recorder.past()
        offered = with_functions(await self._toolbox.of(step), step, self._toolbox)
        tools = tuple(one.tool.described for one in offered.values())
        if step.asked is None:
            setting = setup_of(self._models, step, known.model, tools)
            rounds = Rounds(setting, step.node.id)
        else:  # in a flow; nobody has checked what it asks
            self.check_node(step.node)
            setting = setup_asked(self._models, step, step.asked, known.model, tools)
            read = partial(read_asked, asked=step.asked)
            rounds = Rounds(setting, step.node.id, read=read, repairs_max=REPAIRS_MAX)
        if known.definition and known.definition != setting.definition:
            return _changed(step)
        try:
            return await self._converse(step, rounds, setting, known, offered)
        except llm.ModelFailed as failed:
            return _given_up(failed)

    async def _converse(
        self,
        step: StepContext,
        rounds: Rounds,
        setting: StepSetup,
        known: StepPast,
        offered: Mapping[str, OfferedTool],
    ) -> Result:
        """Go through the rounds; those that were answered before are read from the log."""
        talk, tools = Talk(step, known, self._summary), ToolUses(step, offered)
        while True:
            number = rounds.number + 1
            asked = setting.owing() if rounds.owes else setting
            answer = await self._ask(step, asked, talk, number, rounds.room)
            match rounds.after(answer):
                case Ask(follow_up):
                    talk.follow(llm.user(follow_up))
                case UseTools(calls, refused):
                    results = refuse(calls, refused) if refused else await tools.use(calls, number)
                    rounds.used(calls, results)
                    talk.follow(llm.ToolMessage(results))
                case Result() as result:
                    await tools.keep_outputs()
                    return result

    async def _summary(self, step: StepContext) -> str:
        """What the step is told of the run so far: by a model if there is one for it, else by rules."""
        if self._summary_model is None or not wants_summary(step):
            return await step.preamble()
        try:
            setting = summary_setup(self._models.full_name(self._summary_model), step)
            return (await self._ask(step, setting, SummaryTalk(step), SUMMARY_CALL_NUMBER, None)).text
        except llm.ModelFailed as failed:
            step.log(f"no model could summarise the run, so rules were used: {failed}")
            return await step.preamble()

    async def _ask(
        self, step: StepContext, setting: StepSetup, talk: OpenConversation, number: int, room: int | None
    ) -> Answered:
        """The answer to request `number` of the step, asked as often as its failures allow.

        One that was answered before is read from the log. An answer that broke off is requested again, or
        continued where it ended.
        """
        call = f"m{number}"
        if await step.recorder.has(call):
            return read_recorded(await step.recorder.call(call, _never, (), CallOptions()))
        # A provider that refused to continue an answer in an earlier attempt is not asked to again.
        refused = llm.FailureKind.REQUEST.value in await step.recorder.failures(call)
        continues = setting.continues and not refused
        thread = await talk.asking()
        nodes = thread.take_fresh()
        while True:
            told = step.recorder.instructions() if number != SUMMARY_CALL_NUMBER else ()
            asked = thread.with_message(llm.user(instructed(told))) if told else thread
            request = setting.request(asked.messages, number, room)
            prefix = (await step.recorder.partial(call)).rstrip() if continues else ""
            key = step.recorder.key_of(call)
            asking = AgentRequest(
                self._models, self._prices, continued(request, prefix), key, asked, _heard(step), prefix
            )
            options = self._options(step, setting, asking.request, asked, {**nodes, **asked.fresh}, told)
            try:
                value = await step.recorder.call(call, asking.ask, (), options)
                assert asking.continued is not None
                talk.answered(asking.continued)
                return read_recorded(value)
            except llm.ModelFailed as failed:
                thread = asked  # the request was begun, so what people said is taken
                if failed.failure.kind is llm.FailureKind.TOO_LONG:
                    thread = _shorter(step, thread, failed)
                elif prefix and failed.failure.kind in NOT_CONTINUED:
                    step.log(
                        "the response that was cut off could not be continued, and is requested again: "
                        f"{failed}"
                    )
                    continues = False
                else:
                    await self._wait(step, failed, call)
                nodes |= thread.fresh
            except LimitReached as reached:
                less = with_room(asking.request, reached) or await self._hold(step, reached)
                room = less.max_tokens
            except Refused as refused:
                if refused.code != "steering_taken":
                    raise

    async def _hold(self, step: StepContext, reached: LimitReached) -> llm.ModelRequest:
        """Stop here until the limit is raised; that of a day ends by itself."""
        until_us = end_of(reached.scope, self._clock.now_us())
        await step.recorder.hold("limit", str(reached), until_us, hit_of(reached))
        raise reached  # never: a held attempt does not return

    def _options(
        self,
        step: StepContext,
        setting: StepSetup,
        request: llm.ModelRequest,
        thread: Thread,
        nodes: dict[str, bytes],
        told: tuple[str, ...],
    ) -> CallOptions:
        return CallOptions(
            type=CallKind.MODEL.value,
            name=setting.model,
            model=setting.model,
            definition=setting.definition,
            thread=thread.head,
            nodes=nodes,
            reserved=request_reservation(step, request, self._prices, self._clock.now_us()),
            shortened_to=0 if request.max_tokens == setting.max_tokens else request.max_tokens or 0,
            chat=step.chat,
            steering=told,
        )

    async def _wait(self, step: StepContext, failed: llm.ModelFailed, call: str) -> None:
        """Wait until the request can be made again; if it cannot be, raise the failure.

        The log counts the tries, whichever process and attempt made them. If a provider has asked to wait too
        often, a person decides when to go on.
        """
        now_us, failures = self._clock.now_us(), await step.recorder.failures(call)
        tries = llm.tries_of(failed.failure, failures)
        then = llm.after_failure(failed.failure, tries=tries, now_us=now_us, roll=self._dice.roll())
        if isinstance(then, llm.GiveUp):
            if llm.HANDLING[failed.failure.kind].retry is llm.Retry.HOLD:
                await step.recorder.hold("rate_limit", str(failed))
            raise failed
        wait_s = (then.at_us - now_us) / 1_000_000
        if wait_s > WAIT_S_MAX:
            await step.recorder.hold("rate_limit", str(failed), then.at_us)
        await step.recorder.wait_s(wait_s)


async def _never(*arguments: object) -> None:
    raise AssertionError("the call already had a result")


def _shorter(step: StepContext, thread: Thread, failed: llm.ModelFailed) -> Thread:
    """The conversation without what can be spared; raises the failure if there is nothing."""
    shorter = shortened_thread(thread)
    if shorter is None:
        raise failed
    step.log("the conversation was too long for its model: old tool results were left out")
    return shorter


def _given_up(failed: llm.ModelFailed) -> Result:
    """A failure of the provider: the answers so far are kept; a wrong key or request stops the run."""
    stop = llm.HANDLING[failed.failure.kind].stop
    return replace(Result.fail(str(failed), retryable=not stop), stop=stop, keeps_calls=True)


def _changed(step: StepContext) -> Result:
    why = f"the request of {step.node.id} has changed since it was first sent; "
    failed = Result.fail(f"{why}retry the step to send it again, or resume with --original.", retryable=False)
    return replace(failed, stop=PIPELINE_ERROR, keeps_calls=True)


def _heard(step: StepContext) -> Callable[[ChunkKind, str], None]:
    """Where pieces of an answer go while it grows."""

    def heard(kind: str, text: str) -> None:
        if kind == "text" and text:
            step.output.hear("stdout", text.encode())

    return heard


SUMMARY_CALL_NUMBER = 0
SUMMARY_FIDELITY = "summary:"
SUMMARY_TOKENS = {"summary:low": 600, "summary:medium": 1_500, "summary:high": 3_000}
SUMMARY_SYSTEM = (
    "Summarise the account of a run for whoever does its next step: what was done, what was decided, which "
    "values matter, and what is open. Use short sentences, and invent nothing."
)


def wants_summary(step: StepContext) -> bool:
    """Whether the step is to be told a summary of what came before it."""
    return step.fidelity.startswith(SUMMARY_FIDELITY)


def summary_setup(model: str, step: StepContext) -> StepSetup:
    """How the summary of a step is asked for."""
    return StepSetup(
        model=model,
        system=SUMMARY_SYSTEM,
        definition="",
        effort=None,
        max_tokens=SUMMARY_TOKENS.get(step.fidelity, SUMMARY_TOKENS["summary:medium"]),
        temperature=None,
        rounds_max=1,
    )


class SummaryTalk:
    """The conversation about a summary: the account that rules make, in their longest form."""

    def __init__(self, step: StepContext) -> None:
        self._step = step

    async def asking(self) -> Thread:
        """As that of a step: what waits for an answer."""
        thread = Thread(self._step.redactor)
        thread.add(llm.user(await self._step.preamble("summary:high")))
        return thread

    def answered(self, thread: Thread) -> None:
        """The answer is all of it."""

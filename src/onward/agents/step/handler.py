"""The handler of agent steps: ask a model until the step has a result. No answer is asked for twice.

    stored conversation, or the prompt ──► ask m1 ──► answer ──► result
                                             ▲           │
                                             └───────────┘ cut off by its ceiling, or its facts cannot be read

A step that runs again continues its stored conversation. Its inputs are not computed again: they would
differ, because the run's past has grown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as with_fields

from onward.agents.model.failure import FailureKind, ModelFailed
from onward.agents.model.request import ModelRequest, user
from onward.agents.model.retries import HANDLING, GiveUp, after_failure
from onward.agents.model.stream import FinishReason
from onward.agents.prices import Prices
from onward.agents.step.asking import Asking, continued
from onward.agents.step.contract import Unreadable, read_answer
from onward.agents.step.limits import end_of, hit_of, reservation, with_room
from onward.agents.step.setting import AllModels, Setting, check_partial, setting_of
from onward.agents.step.thread import Thread, read_thread
from onward.clock import Clock, Dice
from onward.errors import LimitReached
from onward.handlers.calls import CallOptions
from onward.handlers.port import StepContext
from onward.model.call import CallKind
from onward.model.chats.message import ChunkKind
from onward.model.result import Result
from onward.pipeline.graph import Node

REPAIRS_MAX = 1
WAIT_S_MAX = 5.0
"""A provider that asks for a longer wait gets the run held: its worker executes others meanwhile."""
NOT_CONTINUED = (FailureKind.REQUEST, FailureKind.EMPTY)
"""How a provider fails that does not take the beginning of an answer, or has nothing to add to it."""
CONTINUE = "Your answer was cut off. Continue exactly where it ended, without repeating anything."


class AgentHandler:
    """Serves agent steps with a model."""

    keeps_time = False

    def __init__(self, models: AllModels, prices: Prices, clock: Clock, dice: Dice) -> None:
        self._models, self._prices, self._clock, self._dice = models, prices, clock, dice

    def check_node(self, node: Node) -> None:
        """Refuse a node whose model no provider has, before anything is asked."""
        model = self._models.full_name(node.llm_model, provider=node.llm_provider)
        check_partial(self._models, node, model)

    async def run(self, step: StepContext) -> Result:
        """Ask, and read the result from the answer; what was answered before is not asked again."""
        known = await step.recorder.past()
        setting = setting_of(self._models, step, known.model)
        if known.definition and known.definition != setting.definition:
            return _changed(step)
        try:
            return await self._converse(step, setting, known.thread)
        except ModelFailed as failed:
            return _given_up(failed)

    async def _converse(self, step: StepContext, setting: Setting, head: str) -> Result:
        """Go through the rounds; those that were answered before are read from the log."""
        texts: list[str] = []
        thread: Thread | None = None
        repairs, follow_up = 0, ""
        for number in range(1, setting.rounds_max + 1):
            if thread is None and not await step.recorder.has(f"m{number}"):
                thread = await self._thread(step, head)
            if thread is not None and not thread.is_asking:
                thread.add(user(follow_up))
            answered, thread = await self._ask(step, setting, thread, number)
            texts.append(answered["text"])
            is_last = number == setting.rounds_max
            if answered["finish_reason"] == FinishReason.LENGTH.value and not is_last:
                follow_up = CONTINUE
                continue
            if answered["finish_reason"] == FinishReason.REFUSAL.value:
                return Result.fail(f"the model refused: {answered['text'][:500]}", retryable=False)
            try:
                return read_answer("".join(texts), step.node.id)
            except Unreadable as unreadable:
                if repairs >= REPAIRS_MAX or is_last:
                    return Result.fail(f"the answer cannot be used: {unreadable}")
                repairs, texts = repairs + 1, []
                follow_up = f"The end of your answer cannot be used: {unreadable}. Answer again."
        raise AssertionError("the last round returns")

    async def _thread(self, step: StepContext, head: str) -> Thread:
        """The step's stored conversation; for a new step, that of its thread, and what it asks."""
        recorder = step.recorder
        if head:
            return await read_thread(recorder.content, head, step.redactor)
        earlier = recorder.thread_of(step.thread) if step.thread else ""
        before = await read_thread(recorder.content, earlier, step.redactor)
        preamble = "" if before.messages else await step.preamble()
        told = [f"Instruction from the operator: {text}" for text in step.steering]
        before.add(user("\n\n".join(filter(None, (preamble, step.prompt, *told)))))
        return before

    async def _ask(
        self, step: StepContext, setting: Setting, thread: Thread | None, number: int
    ) -> tuple[dict[str, Any], Thread | None]:
        """The answer to request `number` of the step, asked as often as its failures allow.

        Without a thread it was answered before. With one, this also returns the thread with the answer in it.
        An answer that broke off is asked for anew, or continued where it ended.
        """
        call, tries, continues = f"m{number}", 0, setting.continues
        thread = thread or Thread(step.redactor)
        nodes = thread.take_fresh()
        request = setting.request(thread.messages)
        while True:
            tries += 1
            prefix = (await step.recorder.partial(call)).rstrip() if continues else ""
            key = step.recorder.key_of(call)
            asking = Asking(
                self._models, self._prices, continued(request, prefix), key, thread, _heard(step), prefix
            )
            try:
                answer: dict[str, Any] = await step.recorder.call(
                    call, asking.ask, (), self._options(step, setting, asking.request, thread, nodes)
                )
                return answer, asking.continued
            except ModelFailed as failed:
                if prefix and failed.failure.kind in NOT_CONTINUED:
                    step.log(
                        f"the answer that broke off could not be continued, and is asked for anew: {failed}"
                    )
                    continues = False
                    continue
                await self._wait(step, failed, tries)
            except LimitReached as reached:
                room = with_room(asking.request, reached) or await self._hold(step, reached)
                request = with_fields(request, max_tokens=room.max_tokens)

    async def _hold(self, step: StepContext, reached: LimitReached) -> ModelRequest:
        """Stop here until the limit is raised; that of a day ends by itself."""
        until_us = end_of(reached.scope, self._clock.now_us())
        await step.recorder.hold("limit", str(reached), until_us, hit_of(reached))
        raise reached  # never: a held attempt does not return

    def _options(
        self,
        step: StepContext,
        setting: Setting,
        request: ModelRequest,
        thread: Thread,
        nodes: dict[str, bytes],
    ) -> CallOptions:
        return CallOptions(
            type=CallKind.MODEL.value,
            name=setting.model,
            model=setting.model,
            definition=setting.definition,
            thread=thread.head,
            nodes=nodes,
            reserved=reservation(step, request, self._prices, self._clock.now_us()),
            shortened_to=0 if request.max_tokens == setting.max_tokens else request.max_tokens or 0,
            chat=step.chat,
        )

    async def _wait(self, step: StepContext, failed: ModelFailed, tries: int) -> None:
        """Wait until the request can be made again; if it cannot be, raise the failure."""
        now_us = self._clock.now_us()
        then = after_failure(failed.failure, tries=tries, now_us=now_us, roll=self._dice.roll())
        if isinstance(then, GiveUp):
            raise failed
        wait_s = (then.at_us - now_us) / 1_000_000
        if wait_s > WAIT_S_MAX:
            await step.recorder.hold("rate_limit", str(failed), then.at_us)
        await step.recorder.wait_s(wait_s)


def _given_up(failed: ModelFailed) -> Result:
    """A failure of the provider: the answers so far are kept; a wrong key or request stops the run."""
    reason = HANDLING[failed.failure.kind].reason
    stop = reason if reason.startswith("provider_") else ""
    return replace(Result.fail(str(failed), retryable=not stop), stop=stop, keeps_calls=True)


def _changed(step: StepContext) -> Result:
    why = f"what {step.node.id} asks has changed since it was asked first; "
    failed = Result.fail(f"{why}retry the step to ask anew, or resume with --original.", retryable=False)
    return replace(failed, stop="pipeline_error", keeps_calls=True)


def _heard(step: StepContext) -> Callable[[ChunkKind, str], None]:
    """Where pieces of an answer go while it grows."""

    def heard(kind: str, text: str) -> None:
        if kind == "text" and text:
            step.output.hear("stdout", text.encode())

    return heard

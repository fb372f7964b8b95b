"""Records the calls of an agent in a flow: `agent#2/m3.t1` is the first tool that its third answer wants."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from msgspec.structs import replace

from onward.engine.agent_log import AGAIN, AgentPast
from onward.engine.call_log import CallMemory, value_of
from onward.engine.calls import CallRecorder, decision_of
from onward.handlers.calls import AgentCalls, CallOptions, StepQuestion
from onward.model.call import POSITIONAL
from onward.model.gate import Decision


class AgentRecorder(CallRecorder):
    """Records the calls of one agent in a flow."""

    def __init__(self, flow: CallRecorder, calls: AgentCalls, past: AgentPast) -> None:
        super().__init__(flow._parts, flow._started, flow._functions, flow._holding)
        self._under_way, self._tries = flow._under_way, flow._tries
        self._calls, self._own = calls, past.memory
        self._generation = f"{AGAIN}{past.generation}" if past.generation else ""

    async def _remembered(self) -> CallMemory:
        return self._own

    def _full(self, call: str) -> str:
        """The key of a call in the flow. One that a tool chose stays when the agent is tried anew."""
        again = self._generation if POSITIONAL.fullmatch(call) else ""
        return f"{self._calls.key}{again}/{call}"

    def key_of(self, call: str) -> str:
        """The idempotency key of a call."""
        return super().key_of(self._full(call))

    async def call(self, key: str, function: Any, arguments: Any, options: CallOptions) -> Any:
        """What the function answered: now, or when this call was made before."""
        options = replace(options, inputs=self._calls.inputs, patches=self._calls.patches)
        with self._calls.under_way():
            return await super().call(self._full(key), function, arguments, options)

    async def ask(self, key: str, question: StepQuestion) -> Decision:
        """What a person answered. The flow's other branches go on; when every one waits, the attempt ends."""
        key = self._full(key)
        answered = self._own.answers.get(key)
        if answered is not None:
            recorded = await value_of(self._own, self._parts.appender.run.id, answered)
            return decision_of(question, answered, recorded)
        patches, outer = self._calls.patches, self._under_way.outer(key)
        is_inside = outer is not None  # of a tool, whose use is under way
        # Entered by all that ask at the same time before one is put.
        with self._calls.asking(), self._under_way.one(key, outer) if is_inside else nullcontext():
            await self.put(key, question, patches, is_inside=is_inside)
            taken = await self.taken(key, question, patches)
            if taken is None:
                if is_inside:
                    self._holding.end(key)  # a hold waits for nobody's answer
                with self._calls.parked(key, is_inside):
                    while taken is None:
                        await self.rest(None, looks=True)
                        taken = await self.taken(key, question, patches)
        return question.decision(taken.value, taken.value["by"])

    async def has(self, call: str) -> bool:
        """Whether a call has been answered."""
        return await super().has(self._full(call))

    async def partial(self, call: str) -> str:
        """The text that came of a call before its last tries failed or were lost; empty if none did."""
        return await super().partial(self._full(call))

    async def failures(self, call: str) -> tuple[str, ...]:
        """How the service failed in the tries of a call, in words; also in earlier attempts of the step."""
        return await super().failures(self._full(call))

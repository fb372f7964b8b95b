"""A model that plays a script, in this process and on the clock that it is given.

    model = ScriptedModel(ModelScript(default=ScriptedReply(text="Yes.")), clock=clock)

Faults come out as the client of a real endpoint reports them: `tests/agents` plays the same scripts on both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from onward.agents import model as llm
from onward.agents.prices import estimated_usage
from onward.agents.providers import TimeLimits, split_name
from onward.agents.refusal import AskedModel, ProviderResponse, error_in_stream, failed, refusal
from onward.clock import Clock
from onward.testing.script import ModelScript, Played, Playing, ScriptedReply, played, prompt_of
from onward.testing.wire_formats import OpenAIWire, error_body, error_headers

_WIRE = OpenAIWire()
"""Its errors; those of other formats come to the same."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was made."""

    request: llm.ModelRequest
    idempotency_key: str | None


class ScriptedModel:
    """Plays its script to whoever asks; `received` has every request."""

    def __init__(
        self, script: ModelScript | None = None, *, clock: Clock, limits: TimeLimits | None = None
    ) -> None:
        self._playing, self._clock = Playing(script or ModelScript()), clock
        self._limits = limits or TimeLimits()
        self.received: list[Received] = []

    async def stream(
        self, request: llm.ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[llm.Streamed, None]:
        """As the port says."""
        self.received.append(Received(request=request, idempotency_key=idempotency_key))
        asked = AskedModel(*split_name(request.model))
        prompt = prompt_of(request, asked.model)
        reply = self._playing.next(prompt)
        request_id = f"req_{self._playing.requests}"
        await self._wait(reply.first_delay_s)
        self._refuse(asked, reply, request_id)
        act = played(reply, prompt)
        for number, piece in enumerate(act.pieces):
            if number == reply.break_after:
                break
            await self._wait(reply.delay_s if number else 0)
            yield piece
        if reply.break_after is not None:
            await self._break(asked, reply, request_id)
        self._check_empty(asked, act, request_id)
        for call in act.tool_calls:
            yield call
        yield self._finished(request, asked, reply, act, request_id)

    async def close(self) -> None:
        """As the port says: there is nothing to drop."""

    def full_name(self, model: str = "", *, provider: str = "") -> str:
        """`provider:model` for what a node says; there is every model, so an agent step can ask this one."""
        return model if ":" in model else f"{provider or 'openai'}:{model or 'scripted'}"

    def takes_prefix(self, model: str) -> bool:
        """Whether an answer that broke off can be continued: each reply says so itself (`continues`)."""
        return True

    def _finished(
        self, request: llm.ModelRequest, asked: AskedModel, reply: ScriptedReply, act: Played, request_id: str
    ) -> llm.Finished:
        usage = act.usage
        if not reply.counts:
            usage = estimated_usage(request, written=[_written(piece) for piece in act.pieces])
        return llm.Finished(
            usage=usage, finish_reason=act.finish_reason, model=asked.model, request_id=request_id
        )

    def _refuse(self, asked: AskedModel, reply: ScriptedReply, request_id: str) -> None:
        if reply.status == 200 and reply.break_with == "html" and reply.break_after == 0:
            what = "answered with an HTML page"
            raise llm.ModelFailed(
                failed(asked, llm.FailureKind.REQUEST, what, status=200, request_id=request_id)
            )
        if reply.status != 200:
            headers = {"x-request-id": request_id, **error_headers(reply)}
            response = ProviderResponse(status=reply.status, headers=headers, body=error_body(reply, _WIRE))
            raise llm.ModelFailed(refusal(asked, response, now_us=self._clock.now_us()))

    async def _break(self, asked: AskedModel, reply: ScriptedReply, request_id: str) -> None:
        head = ProviderResponse(status=200, headers={"x-request-id": request_id})
        if reply.break_with == "error":
            raise llm.ModelFailed(error_in_stream(asked, _WIRE.error(500)["error"], head))
        what = "ended its response early (the connection was closed)"
        if reply.break_with == "malformed":
            what = "sent an invalid response"
        if reply.break_with == "stall":
            limit_s = self._limits.between_s if reply.break_after else self._limits.first_byte_s
            await self._wait(limit_s)
            what = f"sent nothing for {limit_s:g} s"
        raise llm.ModelFailed(
            failed(asked, llm.FailureKind.CUT, what, status=200, request_id=request_id, may_have_cost=True)
        )

    def _check_empty(self, asked: AskedModel, act: Played, request_id: str) -> None:
        is_said = any(not isinstance(piece, llm.ReasoningDelta) for piece in act.pieces)
        if not is_said and act.finish_reason not in (llm.FinishReason.LENGTH, llm.FinishReason.REFUSAL):
            raise llm.ModelFailed(
                failed(
                    asked,
                    llm.FailureKind.EMPTY,
                    "answered nothing",
                    status=200,
                    request_id=request_id,
                    usage=act.usage,
                    may_have_cost=True,
                )
            )

    async def _wait(self, seconds: float) -> None:
        if seconds:
            await self._clock.wait_s(seconds, asyncio.Event())


def _written(piece: llm.Streamed) -> str:
    match piece:
        case llm.TextDelta(text) | llm.ReasoningDelta(text):
            return text
        case llm.ToolCallDelta(name=name, arguments=arguments):
            return name + arguments
        case _:
            return ""

"""A model of pydantic-ai that plays our scripts, where the library would ask a provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponseStreamEvent
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from onward.agents.model import (
    FinishReason,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)
from onward.agents.others import OthersModel
from onward.agents.providers import Keys, read_providers
from onward.clock import Clock
from onward.process import SystemSpawn
from onward.testing.script import ModelScript, Played, Playing, ScriptedReply, played, prompt_of
from onward.testing.wire_formats import OpenAIWire, error_body, error_headers
from tests.agents.asking import KEY

FINISHES: dict[FinishReason, Any] = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.TOOL_CALLS: "tool_call",
    FinishReason.REFUSAL: "content_filter",
    FinishReason.OTHER: "error",
}


@dataclass
class PlayedResponse(StreamedResponse):
    """The events of a reply."""

    reply: ScriptedReply
    act: Played
    request_id: str

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        manager = self._parts_manager
        for number, piece in enumerate(self.act.pieces):
            if number == self.reply.break_after:
                break
            match piece:
                case TextDelta(text):
                    for event in manager.handle_text_delta(vendor_part_id="text", content=text):
                        yield event
                case ReasoningDelta(text):
                    for event in manager.handle_thinking_delta(vendor_part_id="thought", content=text):
                        yield event
                case ToolCallDelta(index, id, name, arguments):
                    for event in manager.handle_tool_call_delta_events(
                        vendor_part_id=index,
                        tool_name=name or None,
                        args=arguments or None,
                        tool_call_id=id or None,
                    ):
                        yield event
        if self.reply.break_after is not None:
            await self._break()
        if self.reply.counts:
            self._usage = counted(self.act.usage)
        self.finish_reason = FINISHES[self.act.finish_reason] if self.reply.has_done else None
        self.provider_response_id = self.request_id

    async def _break(self) -> None:
        match self.reply.break_with:
            case "malformed":
                raise UnexpectedModelBehavior("Invalid JSON")
            case "stall":
                await asyncio.Event().wait()
            case "error":
                body = {"error": {"message": "scripted", "type": "server_error"}}
                raise ModelHTTPError(500, "small", body, in_stream=True)
            case _:
                raise ModelConnectionError("small", "peer closed connection", phase="read")

    async def close_stream(self) -> None:
        pass

    @property
    def model_name(self) -> str:
        return "small"

    @property
    def provider_name(self) -> str:
        return "played"

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return datetime.now(UTC)


def counted(usage: TokenUsage) -> RequestUsage:
    """Our usage in the library's words."""
    return RequestUsage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cached_input,
        cache_write_tokens=usage.cache_write,
        cache_write_1h_tokens=usage.cache_write_1h,
        output_reasoning_tokens=usage.reasoning,
    )


@dataclass
class Asked:
    """One request as the library's model got it."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters


@dataclass
class Log:
    """What was asked, and how many streams are open."""

    asked: list[Asked] = field(default_factory=list)
    open: int = 0


class PlayedModel(Model):
    """Plays a script to the client; `log` has what the library was asked."""

    def __init__(
        self, script: ModelScript, request: ModelRequest, *, profile: ModelProfile | None = None
    ) -> None:
        super().__init__(profile=profile)
        self._playing, self._request, self.log = Playing(script), request, Log()

    @property
    def model_name(self) -> str:
        return "small"

    @property
    def system(self) -> str:
        return "played"

    @property
    def provider(self) -> None:
        return None

    async def request(self, *_: Any, **__: Any) -> ModelResponse:
        raise AssertionError("answers are streamed")

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncIterator[StreamedResponse]:
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        self.log.asked.append(Asked(messages, settings or {}, parameters))
        prompt = prompt_of(self._request, "small")
        reply = self._playing.next(prompt)
        request_id = f"req_{self._playing.requests}"
        if reply.status != 200:
            headers = {"x-request-id": request_id, **error_headers(reply)}
            raise ModelHTTPError(reply.status, "small", read_body(reply), headers=headers)
        self.log.open += 1
        try:
            yield PlayedResponse(parameters, reply, played(reply, prompt), request_id)
        finally:
            self.log.open -= 1


def read_body(reply: ScriptedReply) -> object:
    """The body of an error as clients give it to the library: JSON as objects, all else as text."""
    import msgspec

    body = error_body(reply, OpenAIWire())
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode()


def client_of(model: Model, *, clock: Clock, key: str = KEY, **settings: Any) -> OthersModel:
    """The client of a provider called acme, with this model behind the library."""
    table = {"format": "pydantic-ai", "provider": "played", "key": "env:ACME_KEY", **settings}
    keys = Keys(variables=lambda: {"ACME_KEY": key}, spawn=SystemSpawn())
    provider = read_providers({"acme": table})["acme"]
    return OthersModel(provider, keys=keys, clock=clock, build=lambda *_: model)

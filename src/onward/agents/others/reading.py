"""The events of one answer, as our pieces. Pure: it knows nothing of connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from pydantic_ai.messages import (
    ModelResponsePart,
    ModelResponsePartDelta,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from onward.agents.model.failure import FailureKind
from onward.agents.model.request import ModelRequest, ToolCall
from onward.agents.model.stream import Finished, FinishReason, Streamed, Usage
from onward.agents.others.sealing import sealed
from onward.agents.providers import split_name
from onward.agents.tokens import estimated_usage
from onward.agents.wire.counting import count
from onward.agents.wire.gathered import ComingCall, Gathered
from onward.agents.wire.refusal import hide, plain
from onward.agents.wire.trouble import Trouble

FINISHES: Mapping[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.REFUSAL,
}


class TheirAnswer(Gathered):
    """What has come of an answer."""

    def __init__(self, request: ModelRequest, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._request, self._secrets = request, secrets
        self._coming: dict[int, ComingCall] = {}

    def read(self, event: ModelResponseStreamEvent) -> Iterator[Streamed]:
        """The pieces in one event."""
        match event:
            case PartStartEvent(index=index, part=part):
                yield from self._begun(index, part)
            case PartDeltaEvent(index=index, delta=delta):
                yield from self._more(index, delta)
            case PartEndEvent(part=ThinkingPart() as part):
                if signature := sealed(self._request.model, part):
                    yield self.add_reasoning("", signature)
            case _:
                pass  # the end of another part

    def end(self, stream: StreamedResponse) -> Iterator[Streamed]:
        """The last pieces, now that no event comes any more; Trouble if the answer is not whole."""
        whole = stream.get()
        self.usage = usage_of(stream.usage)
        said = stream.finish_reason or (whole.provider_details or {}).get("finish_reason")
        if not said or whole.state != "complete":
            raise Trouble(FailureKind.CUT, "broke off its answer (it has no end)", is_sent=True)
        self.finish = FINISHES.get(stream.finish_reason or "", FinishReason.OTHER)
        if self.is_empty and self.finish_reason not in (FinishReason.LENGTH, FinishReason.REFUSAL):
            raise Trouble(FailureKind.EMPTY, "answered nothing", is_sent=True)
        for part in whole.parts:
            if isinstance(part, ToolCallPart):
                yield self._whole_call(part)
        yield Finished(
            usage=self.usage
            or estimated_usage(self._request, pieces=self.pieces, characters=self.characters),
            finish_reason=self.finish_reason,
            model=self._shown(stream.model_name) or split_name(self._request.model)[1],
            request_id=self._shown(stream.provider_response_id),
        )

    def _begun(self, index: int, part: ModelResponsePart) -> Iterator[Streamed]:
        match part:
            case TextPart(content=text):
                if text:
                    yield self.add_text(text)
            case ThinkingPart(content=text):
                if text:
                    yield self.add_reasoning(text)
            case ToolCallPart(tool_name=name, args=args, tool_call_id=id):
                if index not in self._coming:
                    self._coming[index] = self.begin_call()
                    yield self.add_to_call(self._coming[index], id=id, name=name, arguments=_text(args))
            case _:
                pass  # a part of a kind that our answers do not have

    def _more(self, index: int, delta: ModelResponsePartDelta) -> Iterator[Streamed]:
        match delta:
            case TextPartDelta(content_delta=text):
                if text:
                    yield self.add_text(text)
            case ThinkingPartDelta(content_delta=text):
                if text:
                    yield self.add_reasoning(text)
            case ToolCallPartDelta(tool_name_delta=name, args_delta=args):
                if index in self._coming and (name or args):
                    yield self.add_to_call(self._coming[index], name=name or "", arguments=_text(args))
            case _:
                pass  # a part of a kind that our answers do not have

    def _shown(self, text: str | None) -> str:
        return hide(plain(text or "", most=200), self._secrets)

    def _whole_call(self, part: ToolCallPart) -> ToolCall:
        arguments = _text(part.args).strip() or "{}"
        return ToolCall(part.tool_call_id, part.tool_name, arguments, sealed(self._request.model, part))


def usage_of(counted: RequestUsage) -> Usage | None:
    """What the provider counted, where parts are in their sums as they are in ours; None if it did not."""
    if counted.unmeasured_requests or not counted.total_tokens:
        return None
    return Usage(
        input=count(counted.input_tokens),
        output=count(counted.output_tokens),
        cached_input=count(counted.cache_read_tokens),
        cache_write=count(counted.cache_write_tokens),
        cache_write_1h=count(counted.cache_write_1h_tokens),
        reasoning=count(counted.output_reasoning_tokens),
    )


def _text(arguments: str | Mapping[str, Any] | None) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()

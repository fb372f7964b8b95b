"""Our requests, answers and failures in the words of pydantic-ai, and back.

- `build` makes a model of the library for a provider's settings. Its client never retries: retries are ours
  alone.
- `question` is a request; `TheirAnswer` reads the events of one answer as our pieces. Both are pure.
- What a provider wants back unchanged with a thought or a tool call is kept as one of our signatures.
- `failure_of` says what an error of the library, or of a client behind it, means: an exception in, a
  failure out.
"""

from __future__ import annotations

import inspect
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelResponsePartDelta,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as TheirRequest
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from onward.agents import model as llm
from onward.agents.prices import estimated_usage
from onward.agents.providers import TimeLimits, split_name
from onward.agents.refusal import AskedModel, ProviderResponse, error_in, failed, hide, plain, refusal
from onward.agents.wire import ComingCall, ExchangeFailed, Gathered, arguments_object, count, seal, unseal
from onward.errors import InvalidInput

Options = Mapping[str, str | int | float | bool]
BEDROCK = "bedrock"
WITHOUT_RETRIES = (BEDROCK, "huggingface")
"""Take no number of retries with a request: Bedrock's client is built without any, and the other has none."""
ELSEWHERE: Mapping[str, str] = {"xai": "https://api.x.ai/v1"}
"""Retry whatever they are told, and speak OpenAI's format at these addresses."""


def build(name: str, model: str, *, options: Options, limits: TimeLimits) -> Model:
    """The model; InvalidInput, ImportError or an error of the library if there is none for these settings."""
    if name in ELSEWHERE:
        raise InvalidInput(
            f'its client retries requests by itself; write base_url = "{ELSEWHERE[name]}" and no format'
        )
    try:
        made = infer_provider_class(name)
    except ValueError:
        raise InvalidInput(f"pydantic-ai has no provider {name!r}; name one under `provider`") from None
    _check_options(made, name, options)
    provider = _bedrock(made, options, limits) if name == BEDROCK else made(**options)
    found = infer_model(f"{name}:{model}", provider_factory=lambda _: provider)
    if "max_retries" in found.unsupported_settings and name not in WITHOUT_RETRIES:
        raise InvalidInput("its client retries requests by itself, and this cannot be turned off")
    return found


def _check_options(made: type[Provider[Any]], name: str, options: Options) -> None:
    known = {
        one.name
        for one in inspect.signature(made.__init__).parameters.values()
        if one.name != "self" and not one.name.endswith("client")
    }
    unknown = sorted(options.keys() - known)
    if unknown:
        shown = {"api_key": "a key"}
        what = ", ".join(shown.get(one, one) for one in unknown)
        raise InvalidInput(f"the provider {name!r} takes no {what}; it takes {', '.join(sorted(known))}")


def _bedrock(made: Callable[..., Provider[Any]], options: Options, limits: TimeLimits) -> Provider[Any]:
    """Only a client of one's own can be told not to retry."""
    from onward.agents.others_bedrock import bedrock_client

    return made(bedrock_client=bedrock_client(options, limits))


class LibraryRequest(NamedTuple):
    """What the library is asked."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters


def question(
    request: llm.ModelRequest, model: Model, *, limits: TimeLimits, idempotency_key: str | None
) -> LibraryRequest:
    """The request; InvalidInput for what this model's client cannot be told."""
    try:
        msgspec.json.encode(request)  # each client would say in its own way what is wrong with it
    except UnicodeEncodeError:
        raise InvalidInput("the request contains a lone surrogate, which is not a valid character") from None
    return LibraryRequest(
        _messages(request), _settings(request, model, limits, idempotency_key), _parameters(request, model)
    )


def _settings(
    request: llm.ModelRequest, model: Model, limits: TimeLimits, idempotency_key: str | None
) -> ModelSettings:
    without = model.unsupported_settings  # the library warns of those at every request
    settings = ModelSettings()
    if "max_retries" not in without:
        settings["max_retries"] = 0
    if "timeout" not in without:
        settings["timeout"] = max(limits.connect_s + limits.first_byte_s, limits.between_s)
    if idempotency_key is not None and "extra_headers" not in without:
        settings["extra_headers"] = {"Idempotency-Key": quote(idempotency_key, safe="/#:")}
    if request.max_tokens is not None:
        settings["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.effort is not None:
        settings["thinking"] = request.effort.value
    if request.tool_choice is not None and request.tools:
        settings["tool_choice"] = request.tool_choice.value
    if request.stop and "stop_sequences" in without:
        raise InvalidInput("it does not support stop sequences")
    if request.stop:
        settings["stop_sequences"] = [*request.stop]
    return settings


def _parameters(request: llm.ModelRequest, model: Model) -> ModelRequestParameters:
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description or None,
            parameters_json_schema=tool.parameters or {"type": "object", "properties": {}},
        )
        for tool in request.tools
    ]
    if request.format is None:
        return ModelRequestParameters(function_tools=tools)
    is_schema = isinstance(request.format, llm.SchemaFormat)
    wanted = (
        OutputObjectDefinition(json_schema=request.format.schema, name=request.format.name)
        if isinstance(request.format, llm.SchemaFormat)
        else OutputObjectDefinition(json_schema={"type": "object"})
    )
    # Some providers refuse a schema beside tools, and some know none: there the prompt has it.
    is_native = is_schema and not tools and bool(model.profile.get("supports_json_schema_output"))
    return ModelRequestParameters(
        function_tools=tools, output_mode="native" if is_native else "prompted", output_object=wanted
    )


def _messages(request: llm.ModelRequest) -> list[ModelMessage]:
    """The conversation. What is not the model's in a row is one message: some providers want them in turn."""
    names = {
        part.id: part.name for one in request.messages for part in one.parts if isinstance(part, llm.ToolCall)
    }
    found: list[ModelMessage] = []
    said: list[ModelRequestPart] = [SystemPromptPart(request.system)] if request.system else []
    for message in request.messages:
        if isinstance(message, llm.AssistantMessage):
            answered = [*_response_parts(message, request.model)]
            if not answered:
                continue
            found += [TheirRequest(said)] if said else []
            found.append(ModelResponse(answered))
            said = []
        else:
            said += _request_parts(message, names)
    return [*found, TheirRequest(said)] if said else found


def _request_parts(message: llm.Message, names: dict[str, str]) -> Sequence[ModelRequestPart]:
    if not isinstance(message, llm.ToolMessage):
        return [
            UserPromptPart("\n\n".join(part.text for part in message.parts if isinstance(part, llm.Text)))
        ]
    return [
        ToolReturnPart(
            names.get(part.call_id, "tool"),
            part.text,
            part.call_id,
            outcome="failed" if part.is_error else "success",
        )
        for part in message.parts
    ]


def _response_parts(message: llm.AssistantMessage, maker: str) -> Iterator[ModelResponsePart]:
    """What the model said; of its thoughts only those that this one signed, as with our own formats."""
    for part in message.parts:
        kept = unsealed(maker, part.signature) if isinstance(part, llm.Reasoning | llm.ToolCall) else None
        match part:
            case llm.Text(text):
                if text:
                    yield TextPart(text)
            case llm.Reasoning(text):
                if kept is not None:
                    yield ThinkingPart(text, **kept)
            case llm.ToolCall(id, name, arguments):
                given: dict[str, Any] = msgspec.json.decode(bytes(arguments_object(arguments)))
                kept = {key: value for key, value in (kept or {}).items() if key != "signature"}
                yield ToolCallPart(name, given, id, **kept)


FINISHES: Mapping[str, llm.FinishReason] = {
    "stop": llm.FinishReason.STOP,
    "length": llm.FinishReason.LENGTH,
    "tool_call": llm.FinishReason.TOOL_CALLS,
    "content_filter": llm.FinishReason.REFUSAL,
}


class TheirAnswer(Gathered):
    """What has come of an answer."""

    def __init__(self, request: llm.ModelRequest, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._request, self._secrets = request, secrets
        self._coming: dict[int, ComingCall] = {}

    def read(self, event: ModelResponseStreamEvent) -> Iterator[llm.Streamed]:
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

    def end(self, stream: StreamedResponse) -> Iterator[llm.Streamed]:
        """The last pieces, now that no event comes any more; Trouble if the answer is not whole."""
        whole = stream.get()
        if is_counted(stream.usage):
            self.count_usage(lambda: usage_of(stream.usage))
        said = stream.finish_reason or (whole.provider_details or {}).get("finish_reason")
        if not said or whole.state != "complete":
            raise ExchangeFailed(
                llm.FailureKind.CUT, "ended its response early (its end is missing)", is_sent=True
            )
        self.finish = FINISHES.get(stream.finish_reason or "", llm.FinishReason.OTHER)
        if self.is_empty and self.finish_reason not in (llm.FinishReason.LENGTH, llm.FinishReason.REFUSAL):
            raise ExchangeFailed(llm.FailureKind.EMPTY, "answered nothing", is_sent=True)
        for part in whole.parts:
            if isinstance(part, ToolCallPart):
                yield self._whole_call(part)
        yield llm.Finished(
            usage=self.usage or estimated_usage(self._request, written=self.written),
            finish_reason=self.finish_reason,
            model=self._shown(stream.model_name) or split_name(self._request.model)[1],
            request_id=self._shown(stream.provider_response_id),
            note=self.note,
        )

    def _begun(self, index: int, part: ModelResponsePart) -> Iterator[llm.Streamed]:
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
                    yield self.add_to_call(
                        self._coming[index], id=id, name=name, arguments=_arguments_text(args)
                    )
            case _:
                pass  # a part of a kind that our answers do not have

    def _more(self, index: int, delta: ModelResponsePartDelta) -> Iterator[llm.Streamed]:
        match delta:
            case TextPartDelta(content_delta=text):
                if text:
                    yield self.add_text(text)
            case ThinkingPartDelta(content_delta=text):
                if text:
                    yield self.add_reasoning(text)
            case ToolCallPartDelta(tool_name_delta=name, args_delta=args):
                if index in self._coming and (name or args):
                    yield self.add_to_call(
                        self._coming[index], name=name or "", arguments=_arguments_text(args)
                    )
            case _:
                pass  # a part of a kind that our answers do not have

    def _shown(self, text: str | None) -> str:
        return hide(plain(text or "", most=200), self._secrets)

    def _whole_call(self, part: ToolCallPart) -> llm.ToolCall:
        arguments = _arguments_text(part.args).strip() or "{}"
        return llm.ToolCall(part.tool_call_id, part.tool_name, arguments, sealed(self._request.model, part))


def is_counted(counted: RequestUsage) -> bool:
    """Whether the provider counted anything."""
    return not counted.unmeasured_requests and counted.total_tokens != 0


def usage_of(counted: RequestUsage) -> llm.TokenUsage:
    """What the provider counted, where parts are in their sums as they are in ours."""
    return llm.TokenUsage(
        input=count(counted.input_tokens),
        output=count(counted.output_tokens),
        cached_input=count(counted.cache_read_tokens),
        cache_write=count(counted.cache_write_tokens),
        cache_write_1h=count(counted.cache_write_1h_tokens),
        reasoning=count(counted.output_reasoning_tokens),
    )


def _arguments_text(arguments: str | Mapping[str, Any] | None) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()


FIELDS = ("id", "signature", "provider_name", "provider_details")


def sealed(maker: str, part: ThinkingPart | ToolCallPart) -> str:
    """The signature of a part; empty if the provider wants nothing back."""
    kept = {name: value for name in FIELDS if (value := getattr(part, name, None))}
    if not kept.keys() - {"provider_name"}:
        return ""
    return seal(maker, urlsafe_b64encode(msgspec.json.encode(kept)).decode())


def unsealed(maker: str, signature: str) -> dict[str, Any] | None:
    """The fields of a part that this model signed; None for any other signature, or none."""
    found = unseal(maker, signature)
    if found is None:
        return None
    try:
        kept: dict[str, Any] = msgspec.json.decode(urlsafe_b64decode(found[1]), type=dict[str, Any])
    except ValueError:  # of a time when this provider had another format
        return None
    return {name: value for name, value in kept.items() if name in FIELDS}


WORDS: Sequence[tuple[type[ModelAPIError], str]] = (
    (ModelQuotaExceededError, "insufficient_quota"),
    (ModelContextWindowExceededError, "context_length"),
    (ModelRateLimitError, "rate_limit"),
)
"""What the library has found out of an error, in words that `refusal.py` knows."""
REFUSED = (UserError, InvalidInput, TypeError, NotImplementedError, LookupError, AttributeError, ValueError)


def failure_of(
    error: Exception, asked: AskedModel, *, has_begun: bool, now_us: int, secrets: Sequence[str]
) -> llm.Failure:
    """The failure; `has_begun` says whether pieces of the answer had come."""
    said = plain(hide(str(error), secrets)).rstrip(". ")
    match error:
        case ModelConnectionError():
            return _unreachable(error, asked, has_begun)
        case ModelAPIError():
            found = _refused(error, asked, now_us, secrets)
            return msgspec.structs.replace(found, may_have_cost=found.may_have_cost or has_begun)
        case UnexpectedModelBehavior():
            what = "sent an invalid response"
            return failed(asked, llm.FailureKind.CUT, what, may_have_cost=True)
        case _ if isinstance(status := getattr(error, "status_code", None), int) and status >= 400:
            response = ProviderResponse(status=status, headers={}, body=str(error).encode("utf-8", "replace"))
            return refusal(asked, response, now_us=now_us, secrets=secrets)
        case _ if "Credential" in type(error).__name__:
            return failed(asked, llm.FailureKind.AUTH, f"cannot be used: {said}")
        case _ if has_begun:
            what = f"ended its response early ({type(error).__name__}: {said})"
            return failed(asked, llm.FailureKind.CUT, what, may_have_cost=True)
        case _ if isinstance(error, REFUSED) or "Config" in type(error).__name__:
            return failed(asked, llm.FailureKind.REQUEST, f"cannot be used: {said}")
        case _:
            what = f"failed ({type(error).__name__}: {said})"
            return failed(asked, llm.FailureKind.TRANSIENT, what, may_have_cost=True)


def _unreachable(error: ModelConnectionError, asked: AskedModel, has_begun: bool) -> llm.Failure:
    is_sent = error.phase not in ("pool", "connect")
    if has_begun:
        what = "ended its response early (the connection was closed)"
        return failed(asked, llm.FailureKind.CUT, what, may_have_cost=True)
    what = "closed the connection without a response" if is_sent else "could not be reached"
    return failed(asked, llm.FailureKind.TRANSIENT, what, may_have_cost=is_sent)


def _refused(error: ModelAPIError, asked: AskedModel, now_us: int, secrets: Sequence[str]) -> llm.Failure:
    status, headers = None, {}
    if isinstance(error, ModelHTTPError):
        status = error.status_code
        headers = {name: hide(value, secrets) for name, value in (error.headers or {}).items()}
        headers.setdefault("x-request-id", headers.get("x-amzn-requestid", ""))
    if error.retry_after is not None:
        headers["retry-after"] = f"{error.retry_after:.3f}"
    word = next((word for kind, word in WORDS if isinstance(error, kind)), "")
    told = {
        **_error_in(error.body),
        "message": _error_text(error),
        "status": f"{error.provider_error_code or ''} {error.provider_error_type or ''} {word}",
    }
    supposed = 400 if isinstance(error, ModelRequestRejectedError) else 500
    body = msgspec.json.encode({"error": told})
    if isinstance(error.body, str) and not told["status"].strip():
        body = _clean(error.body).encode()  # it may be JSON, or a page
    response = ProviderResponse(status=status or supposed, headers=headers, body=body)
    found = refusal(asked, response, now_us=now_us, secrets=secrets)
    if status is None:
        what = f"failed ({plain(hide(_error_text(error), secrets)).rstrip('. ')})"
        found = failed(asked, found.kind, what, retry_at_us=found.retry_at_us)
    is_unclear = status is None and found.kind is llm.FailureKind.TRANSIENT
    return msgspec.structs.replace(found, may_have_cost=error.in_stream or is_unclear)


def _error_text(error: ModelAPIError) -> str:
    """What the provider says, without what the library adds; whatever came, as text that can be sent."""
    found = _error_in(error.body)
    said = [found[name] for name in ("message", "Message", "detail") if isinstance(found.get(name), str)]
    if said:
        return _clean(said[0])
    return "" if isinstance(error, ModelHTTPError) else _clean(error.message)


def _error_in(body: object) -> dict[str, Any]:
    """The texts of an error, which most providers put into an object of its own."""
    found: Any = (error_in(_clean(body).encode()) or body) if isinstance(body, str) else body
    for name in ("error", "Error"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    if isinstance(found, str):
        return {"message": found}
    texts = found.items() if isinstance(found, dict) else ()
    return {name: _clean(text) for name, text in texts if isinstance(name, str) and isinstance(text, str)}


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()

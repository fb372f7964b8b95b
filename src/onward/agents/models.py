"""All models of all providers, as one Model.

It also has what follows from that: tools for models that know none, and what `onward models` shows.

A model whose server knows no tools is told of them in the prompt, and its wishes come as JSON:

    {"tool": "weather", "arguments": {"city": "Paris"}}        or        {"answer": "It rains."}

The server holds the answer to a schema of these two forms. The caller sees an answer like any other: text,
or tool calls. The text comes at once, since it is known only when the JSON is whole. If the answer reached
its ceiling before that, it is read as far as it came, as with models that know tools.

`list_models` tells which providers are set up and which models have a price. It reads no key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onward.agents import model as llm
from onward.agents.lists import ModelList, ModelPriced, ProgramShown, ProviderShown, RatesShown
from onward.agents.others import INSTALL, is_installed
from onward.agents.prices import Price, PriceSource, Rates
from onward.agents.providers import Keys, Provider, full_name, split_name
from onward.clock import Clock
from onward.errors import InvalidInput
from onward.model.values import OTHER_FORMAT

if TYPE_CHECKING:
    pass


class Models:
    """Asks the provider that a request's model names. An HTTP client is imported with the first request."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        *,
        keys: Keys,
        clock: Clock,
        default: str | None = None,
        proxy: Callable[[str], str | None] = lambda url: None,
    ) -> None:
        """`proxy` finds the proxy for an address."""
        self.providers, self.default, self._proxy = providers, default, proxy
        self._keys, self._clock = keys, clock
        self._clients: dict[str, llm.Model] = {}

    def full_name(self, model: str = "", *, provider: str = "") -> str:
        """`provider:model` for a node's `llm_model` and `llm_provider`; InvalidInput if there is none."""
        return full_name(model, provider=provider, default=self.default, known=self.providers)

    def takes_prefix(self, model: str) -> bool:
        """Whether an answer of this model that broke off can be continued where it ended."""
        return self.providers[split_name(self.full_name(model))[0]].prefill

    def stream(
        self, request: llm.ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[llm.Streamed, None]:
        """As the port says; InvalidInput at once if the request's model names no known provider."""
        name = self.full_name(request.model)
        provider = self.providers[split_name(name)[0]]
        client, request = self._client(provider), msgspec.structs.replace(request, model=name)
        if not request.tools or provider.tools:
            return client.stream(request, idempotency_key=idempotency_key)
        pieces = client.stream(told_in_prompt(request), idempotency_key=idempotency_key)
        return with_tool_calls(pieces, request)

    async def close(self) -> None:
        """As the port says."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    def _client(self, provider: Provider) -> llm.Model:
        if provider.name not in self._clients:
            self._clients[provider.name] = self._opened(provider)
        return self._clients[provider.name]

    def _opened(self, provider: Provider) -> llm.Model:
        if provider.format == OTHER_FORMAT:
            from onward.agents.others import OthersModel

            return OthersModel(provider, keys=self._keys, clock=self._clock)
        from onward.agents.http import Http, WireModel, wire_format

        http = Http(self._clock, proxy=self._proxy)
        return WireModel(provider, wire_format(provider), http=http, keys=self._keys, clock=self._clock)


TOOL, ARGUMENTS, ANSWER = "tool", "arguments", "answer"
USE = f'To use a tool, write {{"{TOOL}": its name, "{ARGUMENTS}": an object}}.'
FINISH = f'To finish, write {{"{ANSWER}": your answer}}.'
_CUT_CALL = re.compile(rf'\s*\{{\s*"{TOOL}"\s*:\s*"([^"\\]+)"\s*,\s*"{ARGUMENTS}"\s*:\s*(\S.*)', re.DOTALL)
_CUT_TEXT = re.compile(rf'\s*\{{\s*"{ANSWER}"\s*:\s*"((?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{{4}})*)')


def told_in_prompt(request: llm.ModelRequest) -> llm.ModelRequest:
    """The same request without tools: they are in its system text, and the format of the answer has them."""
    tools = () if request.tool_choice is llm.ToolChoice.NONE else request.tools
    ways = [USE] if tools else []
    ways += [] if request.tool_choice is llm.ToolChoice.REQUIRED else [FINISH]
    told = [f"Tool {tool.name}: {tool.description} Arguments: {_arguments(tool)}" for tool in tools]
    system = "\n".join(filter(None, (request.system, *told, "Answer with JSON.", *ways)))
    return replace(
        request,
        system=system,
        messages=_plain(request.messages),
        tools=(),
        tool_choice=None,
        format=llm.SchemaFormat("wish", _schema(request, tools)),
    )


async def with_tool_calls(
    pieces: AsyncGenerator[llm.Streamed, None], request: llm.ModelRequest
) -> AsyncGenerator[llm.Streamed, None]:
    """The answer to a request whose tools were told in the prompt, as if its model knew tools."""
    texts: list[str] = []
    async with aclosing(pieces) as coming:
        async for piece in coming:
            if isinstance(piece, llm.TextDelta):
                texts.append(piece.text)
            elif isinstance(piece, llm.ReasoningDelta):
                yield piece
            elif isinstance(piece, llm.Finished):
                text, number = "".join(texts), len(request.messages)
                is_cut = piece.finish_reason is llm.FinishReason.LENGTH
                found = _read_form(text, number) or (
                    _read_cut_form(text, number) if is_cut else llm.TextDelta(text)
                )
                yield found
                is_call = isinstance(found, llm.ToolCall) and not is_cut
                yield replace(piece, finish_reason=llm.FinishReason.TOOL_CALLS) if is_call else piece


def _schema(request: llm.ModelRequest, tools: Sequence[llm.Tool]) -> dict[str, Any]:
    forms = [
        _form({TOOL: {"const": tool.name}, ARGUMENTS: tool.parameters or {"type": "object"}})
        for tool in tools
    ]
    if request.tool_choice is not llm.ToolChoice.REQUIRED or not tools:
        is_structured = isinstance(request.format, llm.SchemaFormat)
        forms.append(_form({ANSWER: request.format.schema if is_structured else {"type": "string"}}))  # type: ignore[union-attr]
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _arguments(tool: llm.Tool) -> str:
    """What a tool takes: in words, which a small model follows sooner; its schema if words do not suffice."""
    properties = tool.parameters.get("properties", {})
    if not properties or not all(_is_plain(one) for one in properties.values()):
        return json.dumps(tool.parameters)
    required = tool.parameters.get("required", ())
    told = [
        f"{name} ({one['type']}{'' if name in required else ', optional'}): {one.get('description', '')}"
        for name, one in properties.items()
    ]
    return " ".join(told)


def _is_plain(schema: Any) -> bool:
    """Whether the schema of an argument is a simple type with a description. The server knows its bounds."""
    known = {"type", "description", "minimum", "maximum", "minLength", "maxLength"}
    is_plain = isinstance(schema, dict) and schema.keys() <= known
    return is_plain and schema.get("type") in ("string", "integer", "number", "boolean")


def _form(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def _plain(messages: Sequence[llm.Message]) -> tuple[llm.Message, ...]:
    """The conversation in words: what tools were asked and what they answered is text."""
    names = {part.id: part.name for one in messages for part in one.parts if isinstance(part, llm.ToolCall)}
    return tuple(_in_words(one, names) for one in messages)


def _in_words(message: llm.Message, names: dict[str, str]) -> llm.Message:
    if isinstance(message, llm.ToolMessage):
        results = [f"Result of {names.get(part.call_id, TOOL)}: {part.text}" for part in message.parts]
        return llm.UserMessage((llm.Text("\n\n".join(results)),))
    if not isinstance(message, llm.AssistantMessage):
        return message
    calls = [part for part in message.parts if isinstance(part, llm.ToolCall)]
    if not calls:
        return message
    said = "\n".join(json.dumps({TOOL: call.name, ARGUMENTS: _object(call.arguments)}) for call in calls)
    return llm.AssistantMessage((llm.Text(said),))


def _object(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _read_form(text: str, number: int) -> llm.ToolCall | llm.TextDelta | None:
    """A tool call, or the text of the answer; None if it is not JSON. Other JSON is shown as it came."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return llm.TextDelta(text)
    if isinstance(said.get(TOOL), str):
        return _call(number, said[TOOL], json.dumps(said.get(ARGUMENTS, {})))
    answer = said.get(ANSWER, said)
    return llm.TextDelta(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def _read_cut_form(text: str, number: int) -> llm.ToolCall | llm.TextDelta:
    """What an answer says that reached its ceiling: the rest of a text can be asked for."""
    if found := _CUT_CALL.match(text):
        return _call(number, found[1], found[2])
    try:
        found = _CUT_TEXT.match(text)
        said = json.loads(f'"{found[1]}"', strict=False) if found else text
    except ValueError:
        return llm.TextDelta(text)
    return llm.TextDelta(said.encode("utf-8", "ignore").decode())  # its last character may be half of one


def _call(number: int, name: str, arguments: str) -> llm.ToolCall:
    return llm.ToolCall(f"call_{number}", name, arguments)


def list_models(
    providers: Mapping[str, Provider],
    prices: Mapping[str, Price],
    *,
    own: Mapping[str, object],
    sources: Mapping[str, PriceSource],
    default: str | None,
    variables: Mapping[str, str],
    directory: str = ".",
    programs: Sequence[ProgramShown] = (),
) -> ModelList:
    """All of it; `own` are the prices of the settings, `variables` those of this process.

    `directory` is where the paths of keys begin.
    """
    named, problem = _default_model(default, providers)
    shown = [
        _provider_shown(provider, _problem(provider, variables, directory))
        for _, provider in sorted(providers.items())
    ]
    why = {one["name"]: one["problem"] for one in shown}
    if named is not None and problem is None:
        problem = why[split_name(named)[0]]
    models = [_model_priced(name, price, own, sources) for name, price in sorted(prices.items())]
    return {
        "default": named,
        "problem": problem,
        "providers": shown,
        "programs": [*programs],
        "models": models,
    }


def _default_model(default: str | None, providers: Mapping[str, Provider]) -> tuple[str | None, str | None]:
    """The default's full name, and what is wrong with it."""
    try:
        return full_name("", default=default, known=providers), None
    except InvalidInput as error:
        return default, str(error)


def _provider_shown(provider: Provider, problem: str | None) -> ProviderShown:
    return {
        "name": provider.name,
        "format": provider.format,
        "base_url": provider.base_url,
        "is_set_up": problem is None,
        "problem": problem,
    }


def _problem(provider: Provider, variables: Mapping[str, str], directory: str) -> str | None:
    """Why a provider cannot be asked, as far as can be told without its key."""
    if provider.format == OTHER_FORMAT and not is_installed():
        return f"pydantic-ai is not installed: {INSTALL}"
    kind, _, rest = (provider.key or "").partition(":")
    if not provider.needs_key or provider.key is None:
        return None
    if kind == "env" and not variables.get(rest):
        return f"the variable {rest}, which should contain its API key, is not set"
    if kind == "file" and not os.path.exists(os.path.join(directory, os.path.expanduser(rest))):
        return f"the file {rest} of its key does not exist"
    return None


def _model_priced(
    name: str, price: Price, own: Mapping[str, object], sources: Mapping[str, PriceSource]
) -> ModelPriced:
    source = None if name in own else sources.get(split_name(name)[0])
    long = price.long
    return {
        "model": name,
        "is_own": name in own,
        "as_of": source.as_of if source is not None else None,
        "long": None if long is None else {**_rates_shown(long), "above": long.above},
        **_rates_shown(price),
    }


def _rates_shown(rates: Rates) -> RatesShown:
    write = rates.input if rates.cache_write is None else rates.cache_write
    return {
        "input_micro": rates.input,
        "output_micro": rates.output,
        "cached_input_micro": rates.input if rates.cached_input is None else rates.cached_input,
        "cache_write_micro": write,
        "cache_write_1h_micro": write if rates.cache_write_1h is None else rates.cache_write_1h,
    }

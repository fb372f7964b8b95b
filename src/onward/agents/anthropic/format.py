"""Anthropic's messages as a wire format."""

from __future__ import annotations

from collections.abc import Mapping

from onward.agents.anthropic.answer import AnthropicAnswer
from onward.agents.anthropic.body import Dialect, encode_body
from onward.agents.anthropic.traits import takes_effort, thinks_adaptively, thinks_anyway
from onward.agents.model.request import ModelRequest
from onward.agents.providers import Provider

VERSION = "2023-06-01"


class AnthropicFormat:
    """How one provider that speaks Anthropic's messages is asked."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def address(self, model: str) -> str:
        """As the port says; people write the base_url with and without its version."""
        base = self._provider.base_url
        return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"

    def headers(self, key: str) -> Mapping[str, str]:
        """As the port says."""
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    def body(self, request: ModelRequest, model: str) -> bytes:
        """As the port says."""
        provider = self._provider
        dialect = Dialect(
            maker=f"{provider.name}:{model}",
            sends_effort=takes_effort(model) if provider.reasoning is None else provider.reasoning,
            thinks=thinks_adaptively(model) and provider.reasoning is not False,
            thinks_anyway=thinks_anyway(model) and provider.reasoning is not False,
            caches=provider.prompt_cache,
        )
        return encode_body(request, model, dialect)

    def answer(self, model: str) -> AnthropicAnswer:
        """As the port says."""
        return AnthropicAnswer(f"{self._provider.name}:{model}")

"""OpenAI's chat completions as a wire format."""

from __future__ import annotations

from collections.abc import Mapping

from onward.agents.model.request import ModelRequest
from onward.agents.openai.answer import OpenAIAnswer
from onward.agents.openai.body import Dialect, encode_body
from onward.agents.openai.traits import can_reason, refused_in_schemas, takes_completion_ceiling
from onward.agents.providers import Provider


class OpenAIFormat:
    """How one provider that speaks OpenAI's chat completions is asked."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def address(self, model: str) -> str:
        """As the port says."""
        return f"{self._provider.base_url}/chat/completions"

    def headers(self, key: str) -> Mapping[str, str]:
        """As the port says."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, request: ModelRequest, model: str) -> bytes:
        """As the port says."""
        return encode_body(request, model, self._dialect(model))

    def answer(self, model: str) -> OpenAIAnswer:
        """As the port says."""
        return OpenAIAnswer()

    def _dialect(self, model: str) -> Dialect:
        provider = self._provider
        is_new = takes_completion_ceiling(model, provider.host)
        default = "max_completion_tokens" if is_new else "max_tokens"
        reasons = can_reason(model) if provider.reasoning is None else provider.reasoning
        return Dialect(
            ceiling=provider.ceiling or default,
            sends_effort=reasons,
            stream_usage=provider.stream_usage,
            refused=refused_in_schemas(model, provider.host),
        )

"""All models of all providers, as one Model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING

import msgspec

from onward.agents.keys import Keys
from onward.agents.model.request import ModelRequest
from onward.agents.model.stream import Streamed
from onward.agents.providers import Provider, full_name, split_name
from onward.agents.tools_as_json import told_in_prompt, with_tool_calls
from onward.clock import Clock
from onward.model.values import OTHER_FORMAT

if TYPE_CHECKING:
    from onward.agents.model.port import Model


class Models:
    """Asks the provider that a request's model names. An HTTP client is imported with the first request."""

    def __init__(
        self, providers: Mapping[str, Provider], *, keys: Keys, clock: Clock, default: str | None = None
    ) -> None:
        self.providers, self.default = providers, default
        self._keys, self._clock = keys, clock
        self._clients: dict[str, Model] = {}

    def full_name(self, model: str = "", *, provider: str = "") -> str:
        """`provider:model` for a node's `llm_model` and `llm_provider`; InvalidInput if there is none."""
        return full_name(model, provider=provider, default=self.default, known=self.providers)

    def takes_prefix(self, model: str) -> bool:
        """Whether an answer of this model that broke off can be continued where it ended."""
        return self.providers[split_name(self.full_name(model))[0]].prefill

    def stream(
        self, request: ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[Streamed, None]:
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

    def _client(self, provider: Provider) -> Model:
        if provider.name not in self._clients:
            self._clients[provider.name] = self._opened(provider)
        return self._clients[provider.name]

    def _opened(self, provider: Provider) -> Model:
        if provider.format == OTHER_FORMAT:
            from onward.agents.others.client import OthersModel

            return OthersModel(provider, keys=self._keys, clock=self._clock)
        from onward.agents.formats import wire_format
        from onward.agents.wire.client import WireModel
        from onward.agents.wire.http import Http

        return WireModel(
            provider, wire_format(provider), http=Http(self._clock), keys=self._keys, clock=self._clock
        )

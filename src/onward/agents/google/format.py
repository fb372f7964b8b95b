"""Google's generateContent as a wire format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from onward.agents.google.answer import GoogleAnswer
from onward.agents.google.body import Dialect, encode_body
from onward.agents.google.traits import takes_budget, takes_level
from onward.agents.model.request import ModelRequest
from onward.agents.providers import Provider

_VERSIONED = re.compile(r"/v1(?:alpha|beta)?$")
_COLLECTIONS = ("models", "tunedModels")


class GoogleFormat:
    """How one provider that speaks Google's generateContent is asked."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def address(self, model: str) -> str:
        """As the port says; people write the base_url with and without its version."""
        base = self._provider.base_url
        versioned = base if _VERSIONED.search(base) else f"{base}/v1beta"
        first, _, rest = model.partition("/")
        collection, name = (first, rest) if rest and first in _COLLECTIONS else ("models", model)
        return f"{versioned}/{collection}/{quote(name, safe='')}:streamGenerateContent?alt=sse"

    def headers(self, key: str) -> Mapping[str, str]:
        """As the port says; never in the address, which others log."""
        return {"x-goog-api-key": key} if key else {}

    def body(self, request: ModelRequest, model: str) -> bytes:
        """As the port says."""
        told = self._provider.reasoning
        has_budget, has_level = takes_budget(model), takes_level(model)
        dialect = Dialect(
            maker=f"{self._provider.name}:{model}",
            takes_level=told is not False and not has_budget and (has_level or told is True),
            takes_budget=told is not False and has_budget,
            wants_signatures=has_level,
        )
        return encode_body(request, dialect)

    def answer(self, model: str) -> GoogleAnswer:
        """As the port says."""
        return GoogleAnswer(f"{self._provider.name}:{model}")

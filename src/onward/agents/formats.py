"""The wire formats by their names in `[providers.NAME] format`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onward.agents.anthropic.format import AnthropicFormat
from onward.agents.google.format import GoogleFormat
from onward.agents.openai.format import OpenAIFormat
from onward.agents.providers import Provider
from onward.agents.wire.format import WireFormat

WIRES: Mapping[str, Callable[[Provider], WireFormat]] = {
    "openai": OpenAIFormat,
    "anthropic": AnthropicFormat,
    "google": GoogleFormat,
}


def wire_format(provider: Provider) -> WireFormat:
    """The format that a provider speaks."""
    return WIRES[provider.format](provider)

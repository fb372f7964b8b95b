"""The wire formats by their names in `[providers.NAME] format`."""

from __future__ import annotations

from onward.agents.openai.format import OpenAIFormat
from onward.agents.providers import Provider
from onward.agents.wire.format import WireFormat


def wire_format(provider: Provider) -> WireFormat:
    """The format that a provider speaks."""
    return OpenAIFormat(provider)

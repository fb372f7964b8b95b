"""The providers of models that need no settings but a key: their addresses and their variables."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

FORMATS = ("openai", "anthropic", "google")
"""The wire formats: OpenAI's chat completions, Anthropic's messages, Google's generateContent."""

OTHERS = "pydantic-ai"
"""The format of a provider that speaks none of these, and is asked through a library."""


class KnownProvider(msgspec.Struct, frozen=True):
    """A provider that is there without being described."""

    name: str
    format: str
    base_url: str
    key_variable: str
    url_variable: str


KNOWN_PROVIDERS: Mapping[str, KnownProvider] = {
    known.name: known
    for known in (
        KnownProvider("openai", "openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        KnownProvider(
            "anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
        ),
        KnownProvider(
            "google",
            "google",
            "https://generativelanguage.googleapis.com",
            "GEMINI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
        ),
    )
}

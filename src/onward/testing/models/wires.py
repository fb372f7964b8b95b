"""Which format a request is in: the address that it went to says it."""

from __future__ import annotations

import re

from onward.testing.models.anthropic_wire import AnthropicWire
from onward.testing.models.google_wire import GoogleWire
from onward.testing.models.openai_wire import OpenAIWire
from onward.testing.models.wire import Wire

PATHS: tuple[tuple[re.Pattern[str], Wire], ...] = (
    (re.compile(r"/v1/chat/completions"), OpenAIWire()),
    (re.compile(r"/v1/messages"), AnthropicWire()),
    (re.compile(r"/v1(?:beta)?/models/[^/]+:streamGenerateContent\?alt=sse"), GoogleWire()),
)


def wire_of(path: str) -> Wire | None:
    """The format of a request to this path; None if there is nothing."""
    return next((wire for pattern, wire in PATHS if pattern.fullmatch(path)), None)

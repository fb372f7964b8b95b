"""How models and servers differ that speak the same format."""

from __future__ import annotations

import re

from onward.agents.wire.bounds import BOUNDS, LENGTHS

OPENAI_HOST = "api.openai.com"
_REASONS = re.compile(r"(?:o[1-9]\d*|gpt-(?:[5-9]|\d\d)|gpt-oss)(?![a-z0-9])")
_CHATS = re.compile(r"gpt-[0-9.]+-chat")
_AZURE = ".openai.azure.com"


def can_reason(model: str) -> bool:
    """Whether a model of this name takes `reasoning_effort`; others refuse the whole request for it."""
    name = model.rpartition("/")[2].lower()  # routers write the maker before the name
    return bool(_REASONS.match(name)) and not _CHATS.match(name)


def takes_completion_ceiling(model: str, host: str) -> bool:
    """Whether the ceiling is `max_completion_tokens`; older servers know only `max_tokens`."""
    return host == OPENAI_HOST or host.endswith(_AZURE) or can_reason(model)


def refused_in_schemas(model: str, host: str) -> frozenset[str]:
    """The keywords of a schema for which the whole request is refused, also through a router.

    OpenAI takes no lengths of texts; Azure and Anthropic take no bounds. Other servers get the whole schema.
    """
    name = model.rpartition("/")[2].lower()
    if host.endswith(_AZURE):
        return BOUNDS | {"pattern", "format"}
    if name.startswith("claude"):
        return BOUNDS
    is_theirs = can_reason(name) or name.startswith(("gpt-", "chatgpt-"))
    return LENGTHS if host == OPENAI_HOST or (is_theirs and "oss" not in name) else frozenset()

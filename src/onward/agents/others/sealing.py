"""What a provider wants back unchanged with a thought or a tool call, as one of our signatures."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec
from pydantic_ai.messages import ThinkingPart, ToolCallPart

from onward.agents.wire.signature import seal, unseal

FIELDS = ("id", "signature", "provider_name", "provider_details")


def sealed(maker: str, part: ThinkingPart | ToolCallPart) -> str:
    """The signature of a part; empty if the provider wants nothing back."""
    kept = {name: value for name in FIELDS if (value := getattr(part, name, None))}
    if not kept.keys() - {"provider_name"}:
        return ""
    return seal(maker, urlsafe_b64encode(msgspec.json.encode(kept)).decode())


def unsealed(maker: str, signature: str) -> dict[str, Any] | None:
    """The fields of a part that this model signed; None for any other signature, or none."""
    found = unseal(maker, signature)
    if found is None:
        return None
    try:
        kept: dict[str, Any] = msgspec.json.decode(urlsafe_b64decode(found[1]), type=dict[str, Any])
    except ValueError:  # of a time when this provider had another format
        return None
    return {name: value for name, value in kept.items() if name in FIELDS}

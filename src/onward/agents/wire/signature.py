"""Signatures of providers as they are stored: with the model that gave them, since no other takes them.

A provider signs what its model thought, and wants both back unchanged when the conversation goes on. The
conversation may go on with another model, which would refuse the whole request for a foreign signature.
"""

from __future__ import annotations

PLAIN = "plain"


def seal(maker: str, data: str, *, kind: str = PLAIN) -> str:
    """A signature to be stored; empty if there is none. `maker` is `provider:model`; `data` has no space."""
    return f"{maker} {kind} {data}" if data else ""


def unseal(maker: str, signature: str) -> tuple[str, str] | None:
    """The kind and the data of a signature that this model gave; None for that of another, or for none."""
    by, *rest = signature.rsplit(" ", 2)
    return (rest[0], rest[1]) if by == maker and len(rest) == 2 else None

"""The arguments of a tool call, for formats that take them as an object and not as text."""

from __future__ import annotations

import msgspec


def arguments_object(arguments: str) -> msgspec.Raw:
    """The JSON object that the model wrote; what is none is told as text, so that the model sees it."""
    try:
        is_object = isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, RecursionError):
        is_object = False
    return msgspec.Raw(arguments.encode() if is_object else msgspec.json.encode({"invalid": arguments}))

"""The description of the API, made from the table of routes and the types of requests and replies."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from onward.operations.http import ROUTES
from onward.version import VERSION


@lru_cache(maxsize=1)
def document() -> bytes:
    """OpenAPI 3.1, as JSON."""
    paths: dict[str, dict[str, object]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = {"operationId": route.operation}
    info = {"title": "Onward", "version": VERSION}
    return msgspec.json.encode({"openapi": "3.1.0", "info": info, "paths": paths})


@lru_cache(maxsize=1)
def document_page() -> str:
    """The same for people."""
    rows = "".join(f"<li><code>{route.method} {route.path}</code> {route.operation}" for route in ROUTES)
    return f"<!doctype html><html lang=en><meta charset=utf-8><title>Onward</title><ul>{rows}</ul></html>"

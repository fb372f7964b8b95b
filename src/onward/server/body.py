"""The body of a request: one JSON object, within limits of size and depth."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from onward.errors import InvalidInput
from onward.server.problems import Problem

if TYPE_CHECKING:
    from onward.server.place import Asked

BODY_S_MAX = 20.0
"""How long a client may take to send its body."""
# Neither part can match in two ways, and an open string ends with the text: this is linear in its length.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_EMPTY = re.compile(rb"\[\]|\{\}")
_OTHERS = bytes(sorted(set(range(256)) - set(b"[]{}")))


async def read_body(asked: Asked) -> bytes:
    """The JSON text of an object; empty if there is none."""
    settings, headers = asked.context.settings, asked.http.headers
    _check_type(headers.get("content-type"), headers.get("content-encoding"))
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()) or int(length[:20]) > settings.body_bytes:
        raise _too_large(settings.body_bytes)
    try:
        async with asyncio.timeout(BODY_S_MAX):
            body = await _read(asked, settings.body_bytes)
    except TimeoutError:
        raise Problem(408, "too_slow", f"the body did not arrive within {BODY_S_MAX:g} s.") from None
    if body and headers.get("content-type") is None:
        raise _wrong_type()
    if body.strip() and not body.lstrip().startswith(b"{"):
        raise InvalidInput("the body is not a JSON object.")
    if is_deeper(body, settings.json_depth):
        raise InvalidInput(f"the body is nested deeper than {settings.json_depth} levels.")
    return body.strip()


async def _read(asked: Asked, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in asked.http.stream():
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def is_deeper(body: bytes, depth: int) -> bool:
    """Whether JSON is nested deeper than this many levels. Takes time in proportion to its length."""
    if body.count(b"[") + body.count(b"{") <= depth:
        return False
    left = _STRINGS.sub(b"", body).translate(None, _OTHERS)
    for _ in range(depth):
        left = _EMPTY.sub(b"", left)  # the innermost level, and no other
        if not left:
            return False
    return True


def _check_type(given: str | None, encoding: str | None) -> None:
    if encoding is not None and encoding.lower() != "identity":
        raise Problem(415, "content_type", "the body has a Content-Encoding; send it without one.")
    if given is None:
        return
    kind, _, parameter = given.partition(";")
    if kind.strip().lower() != "application/json" or parameter.strip().lower() not in ("", "charset=utf-8"):
        raise _wrong_type()


def _wrong_type() -> Problem:
    return Problem(415, "content_type", "the body must be application/json.")


def _too_large(most: int) -> Problem:
    return Problem(413, "too_large", f"the body is larger than {most:,} bytes.")

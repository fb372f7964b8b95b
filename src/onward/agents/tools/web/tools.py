"""The tools http_get and http_send: two, because asking may be repeated and sending may not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from onward.agents.model.request import Tool
from onward.agents.tools.describing import arguments, text
from onward.agents.tools.port import CutOff, ToolAnswer, ToolRefused, ToolRules, ToolUse
from onward.agents.tools.web.addresses import (
    Allowed,
    Target,
    UrlRefused,
    check_addresses,
    check_target,
    redirected,
    target_of,
)
from onward.agents.tools.web.client import BODY_BYTES_MAX, RequestFailed, Response, request, resolve
from onward.errors import CallTimedOut
from onward.model.values import HTTP_GET_TOOL, HTTP_SEND_TOOL

REDIRECTS_MAX = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS_MAX = 50
HEADER_CHARACTERS_MAX = 4_000
SENT_BYTES_MAX = 1024 * 1024
SHOWN = ("content-type", "content-length", "location", "retry-after", "etag", "last-modified", "link")
CARRIED = frozenset({"accept", "accept-language"})
"""Headers that go to another host with a redirect: nothing that could be a key."""
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OURS = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|accept-encoding|proxy-.*",
    re.IGNORECASE,
)
_ASKING = ToolRules(time_limit_s=60.0)
_SENDING = ToolRules(repeatable=False, approval=True, is_concurrent=False, time_limit_s=60.0)
Resolve = Callable[[str, int], Awaitable[list[str]]]


class Web(msgspec.Struct, frozen=True):
    """Where requests may go. Without entries, nowhere."""

    allowed: tuple[Allowed, ...] = ()
    allows_private: bool = False
    resolve: Resolve = resolve
    body_bytes_max: int = BODY_BYTES_MAX

    async def addresses(self, target: Target) -> list[str]:
        """The addresses of a host, all of them checked; UrlRefused if a request may not go there."""
        check_target(target, self.allowed)
        found = await self.resolve(target.host, target.port)
        check_addresses(target, found, allows_private=self.allows_private)
        return found

    async def get(self, method: str, url: str, headers: Mapping[str, str]) -> tuple[Target, Response]:
        """Ask, and follow redirects; each is checked as if it had been asked for."""
        target, sent = target_of(url), headers
        for _ in range(REDIRECTS_MAX + 1):
            addresses = await self.addresses(target)
            response = await request(
                method, target, addresses=addresses, headers=sent, body_bytes_max=self.body_bytes_max
            )
            if response.status not in REDIRECTS or "location" not in response.headers:
                return target, response
            after = redirected(target, response.headers["location"])
            if after.origin != target.origin:
                sent = {name: value for name, value in sent.items() if name.lower() in CARRIED}
            target = after
        raise UrlRefused(
            f"there were more than {REDIRECTS_MAX} redirects; the last one leads to {target.url}."
        )

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[Target, Response]:
        """Send; a redirect is an answer, since whoever follows it sends once more."""
        target = target_of(url)
        addresses = await self.addresses(target)
        response = await request(
            method,
            target,
            addresses=addresses,
            headers=headers,
            body=body,
            body_bytes_max=self.body_bytes_max,
        )
        return target, response


class HttpGet(msgspec.Struct, frozen=True):
    """Asks a server; may be repeated."""

    web: Web
    described: Tool
    rules: ToolRules = _ASKING

    async def run(self, use: ToolUse) -> ToolAnswer:
        given = use.arguments
        asking = self.web.get(given.get("method", "GET"), given["url"], _headers(given.get("headers", {})))
        return await _answered(asking, use)


class HttpSend(msgspec.Struct, frozen=True):
    """Sends something to a server, which may not be repeated: if no answer comes in time, it is in doubt."""

    web: Web
    described: Tool
    rules: ToolRules = _SENDING

    async def run(self, use: ToolUse) -> ToolAnswer:
        given = use.arguments
        body, headers = given.get("body", "").encode(), _headers(given.get("headers", {}))
        if len(body) > SENT_BYTES_MAX:
            raise ToolRefused(f"the body has more than {SENT_BYTES_MAX:,} bytes; send less.")
        return await _answered(self.web.send(given["method"], given["url"], headers, body), use)


async def _answered(asking: Awaitable[tuple[Target, Response]], use: ToolUse) -> ToolAnswer:
    limit_s = use.rules.time_limit_s
    try:
        async with asyncio.timeout(limit_s):
            target, response = await asking
    except TimeoutError:
        if not use.rules.repeatable:
            raise CallTimedOut(use.key, limit_s) from None
        raise ToolRefused(f"no answer within {limit_s:g} s.") from None
    except UrlRefused as refused:
        raise ToolRefused(str(refused)) from None
    except RequestFailed as failed:
        if failed.is_sent and not use.rules.repeatable:
            raise CutOff(use.key, limit_s, str(failed)) from None
        raise ToolRefused(str(failed)) from None
    return ToolAnswer(_shown(target, response), is_error=response.status >= 400)


def _shown(target: Target, response: Response) -> str:
    head = [f"HTTP {response.status} {response.reason}".rstrip(), f"from {target.url}"]
    head += [f"{name}: {response.headers[name][:1000]}" for name in SHOWN if name in response.headers]
    lines = ["\n".join(head), "", _body(response)]
    if response.is_cut:
        lines.append(f"[the body goes on; only its first {len(response.body):,} bytes were read]")
    return "\n".join(lines).rstrip("\n")


def _body(response: Response) -> str:
    if b"\0" in response.body[:8192]:
        return f"[a body of {len(response.body):,} bytes that is not text]"
    try:
        return response.body.decode(response.charset or "utf-8", "replace")
    except LookupError:
        return response.body.decode("utf-8", "replace")


def _headers(given: Mapping[str, Any]) -> dict[str, str]:
    """The headers that the model wants; ToolRefused for those that decide about the connection."""
    if len(given) > HEADERS_MAX:
        raise ToolRefused(f"there are more than {HEADERS_MAX} headers; send fewer.")
    for name, value in given.items():
        is_text = isinstance(value, str) and len(value) <= HEADER_CHARACTERS_MAX and _VALUE.fullmatch(value)
        if not _NAME.fullmatch(name) or not is_text:
            raise ToolRefused(f"the header {name[:80]!a} cannot be sent; use printable ASCII in one line.")
        if _OURS.fullmatch(name):
            raise ToolRefused(f"the header {name} is set by Onward; leave it out.")
    return dict(given)


_URL = text("The address, with https:// or http://. Only hosts that a person has allowed can be asked.")
_HEADERS = {"type": "object", "additionalProperties": {"type": "string"}, "description": "More headers."}


def web_tools(web: Web) -> list[HttpGet | HttpSend]:
    """Both of them; none if no host is allowed."""
    if not web.allowed:
        return []
    get = Tool(
        HTTP_GET_TOOL,
        "Make an HTTP request that changes nothing, and show the response. Redirects are followed.",
        arguments({"url": _URL}, {"method": {"enum": ["GET", "HEAD"]}, "headers": _HEADERS}),
    )
    send = Tool(
        HTTP_SEND_TOOL,
        "Make an HTTP request that sends or changes something. No redirect is followed.",
        arguments(
            {"url": _URL, "method": {"enum": ["POST", "PUT", "PATCH", "DELETE"]}},
            {"headers": _HEADERS, "body": text("The body; say its type in the header Content-Type.")},
        ),
    )
    return [HttpGet(web, get), HttpSend(web, send)]

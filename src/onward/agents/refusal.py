"""What an error response of a provider means. Pure: status, headers and body in, a failure out.

The words of an error say more than its HTTP status, so they are looked at first. The headers, or the error
itself, may say when the provider can be asked again. Text of a provider is shown on one line and without
anything that looks like a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from onward.agents.model import ASKED_S_MAX, Failure, FailureKind

SAID_CHARACTERS_MAX = 300
_KEY_LIKE = re.compile(r"\b(?:(?:sk|pk|key|gsk|xai)[-_][A-Za-z0-9_*.\-]{6,}|AIza[A-Za-z0-9_*.\-]{6,})")
_TITLE = re.compile(r"<(title|h1)[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+")

BY_STATUS: Mapping[int, FailureKind] = {
    401: FailureKind.AUTH,
    402: FailureKind.CREDIT,
    403: FailureKind.FORBIDDEN,
    408: FailureKind.TRANSIENT,
    409: FailureKind.TRANSIENT,
    413: FailureKind.TOO_LONG,
    425: FailureKind.TRANSIENT,
    429: FailureKind.RATE_LIMIT,
}
"""Below 400 and other 4xx: the request. From 500 on: transient."""

# The words of the error's code, type, status and details, which say more than the HTTP status. The first that
# is found counts.
BY_WORD: Sequence[tuple[str, FailureKind]] = (
    ("spend_limit", FailureKind.CREDIT),  # Anthropic calls it a rate limit, which waiting does not lift
    ("api_key_invalid", FailureKind.AUTH),  # Google calls it an invalid argument
    ("unauthenticated", FailureKind.AUTH),
    ("resource_exhausted", FailureKind.RATE_LIMIT),
    ("request_too_large", FailureKind.TOO_LONG),
    ("context_length", FailureKind.TOO_LONG),
    ("exceed_context_size", FailureKind.TOO_LONG),
    ("string_above_max_length", FailureKind.TOO_LONG),
    ("insufficient_quota", FailureKind.CREDIT),
    ("credit", FailureKind.CREDIT),
    ("billing", FailureKind.CREDIT),
    ("invalid_api_key", FailureKind.AUTH),
    ("authentication", FailureKind.AUTH),
    ("permission", FailureKind.FORBIDDEN),
    ("rate_limit", FailureKind.RATE_LIMIT),
    ("overloaded", FailureKind.TRANSIENT),
    ("slow_down", FailureKind.TRANSIENT),
    ("server_error", FailureKind.TRANSIENT),
    ("unavailable", FailureKind.TRANSIENT),
)
# Servers that give no code say it in words.
_TOO_LONG = re.compile(
    r"maximum context length|context (?:length|size|window|limit)|prompt is too long|too many tokens"
    r"|token count .{0,20}exceeds",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"current quota|credit balance|insufficient (?:balance|credit|funds)|billing", re.IGNORECASE
)
_NO_CREDIT_EITHER = re.compile(r"credit balance|usage limits|spend limit|enable billing", re.IGNORECASE)
"""What a refused request says of credit: Anthropic and Google answer 400 then."""
_NEVER_LATER = re.compile(r"\blimit: 0\b|credits are depleted", re.IGNORECASE)
"""What Google says of a quota that no waiting fills."""

ADVICE: Mapping[FailureKind, str] = {
    FailureKind.TRANSIENT: "it can be retried",
    FailureKind.RATE_LIMIT: "retry it later",
    FailureKind.AUTH: "check the provider's key, then resume the run",
    FailureKind.CREDIT: "add credit to the account, then resume the run",
    FailureKind.FORBIDDEN: "check the permissions of the key, then resume the run",
    FailureKind.REQUEST: "check the model's name, the base_url and the request, then resume the run",
    FailureKind.TOO_LONG: "shorten the conversation, or use a model with a larger context",
    FailureKind.EMPTY: "it can be retried",
    FailureKind.CUT: "it can be retried",
}


class AskedModel(msgspec.Struct, frozen=True):
    """Who was asked for what: the part of a failure that is known before the answer."""

    provider: str
    model: str


class ProviderResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a response and the beginning of its body; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def content_type(self) -> str:
        """Such as `text/event-stream`; empty if the server does not say."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def request_id(self) -> str:
        """The provider's name for the request, for its support; empty if it gave none."""
        return plain(self.headers.get("x-request-id", "") or self.headers.get("request-id", ""), most=200)


def refusal(
    asked: AskedModel, response: ProviderResponse, *, now_us: int, secrets: Sequence[str] = ()
) -> Failure:
    """The failure that an error response stands for."""
    error = error_in(response.body)
    said, words = _said(error, response.body), _words(error)
    kind = _kind(response.status, words, said)
    return Failure(
        kind=kind,
        message=_sentence(asked, kind, f"{response.status}", hide(said, secrets)),
        provider=asked.provider,
        model=asked.model,
        status=response.status,
        request_id=response.request_id,
        retry_at_us=retry_at_us({"retry-after": _retry_after(error), **response.headers}, now_us),
    )


def error_in_stream(
    asked: AskedModel, error: Any, response: ProviderResponse, *, secrets: Sequence[str] = ()
) -> Failure:
    """The failure that an `error` object in the middle of an answer stands for."""
    said, words = _said(error, b""), _words(error)
    number = str(error.get("code")) if isinstance(error, dict) else ""
    status = 400 if "invalid_request" in words else 500
    if re.fullmatch("[45][0-9][0-9]", number):
        status = int(number)
    kind = _kind(status, words, said)
    return Failure(
        kind=kind,
        message=_sentence(asked, kind, "an error inside the response", hide(said, secrets)),
        provider=asked.provider,
        model=asked.model,
        status=response.status,
        request_id=response.request_id,
        may_have_cost=True,
    )


def failed(asked: AskedModel, kind: FailureKind, what: str, **more: Any) -> Failure:
    """A failure that we found ourselves; `what` goes on after the model's name."""
    message = f"{asked.provider}:{asked.model} {what}; {ADVICE[kind]}."
    return Failure(kind=kind, message=message, provider=asked.provider, model=asked.model, **more)


NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""How decoding fails: what is no JSON, has a string that is no UTF-8, or is nested without end."""


def error_in(body: bytes) -> Any:
    """The `error` of a JSON body, or the body itself if it has none; None if it is not JSON."""
    try:
        found = msgspec.json.decode(body.decode("utf-8", "replace"))
    except NO_JSON:
        return None
    if isinstance(found, list) and found:  # Google's compatible endpoint wraps it
        found = found[0]
    return found.get("error", found) if isinstance(found, dict) else found


def hide(text: str, secrets: Sequence[str]) -> str:
    """The text without these secrets and without anything that looks like a key."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[key]")
    return _KEY_LIKE.sub("[key]", text)


def plain(text: str, *, most: int = SAID_CHARACTERS_MAX) -> str:
    """Foreign text for one line: no control characters, and not too long."""
    text = " ".join(_UNSEEN.sub(" ", text).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _kind(status: int, words: str, said: str) -> FailureKind:
    if status == 429 and _NEVER_LATER.search(said):
        return FailureKind.CREDIT
    for word, kind in BY_WORD:
        if word in words:
            return kind
    if 400 <= status < 500 and _TOO_LONG.search(said):
        return FailureKind.TOO_LONG
    if status in (403, 429) and _NO_CREDIT.search(said):
        return FailureKind.CREDIT
    if status == 400 and _NO_CREDIT_EITHER.search(said):
        return FailureKind.CREDIT
    if status in BY_STATUS:
        return BY_STATUS[status]
    return FailureKind.TRANSIENT if status >= 500 else FailureKind.REQUEST


def _words(error: Any) -> str:
    if not isinstance(error, dict):
        return ""
    found = [error.get(name) for name in ("code", "type", "status")]
    found += [detail.get(name) for detail in _details(error) for name in ("reason", "error_code")]
    return " ".join(str(word or "").lower() for word in found)


def _details(error: Any) -> list[dict[str, Any]]:
    """What some providers add to an error: an object, or a list of them."""
    found = error.get("details") if isinstance(error, dict) else None
    return [detail for detail in (found if isinstance(found, list) else [found]) if isinstance(detail, dict)]


def _retry_after(error: Any) -> str:
    """The seconds after which Google says that it can be asked again; empty if it does not."""
    for detail in _details(error):
        if isinstance(delay := detail.get("retryDelay"), str) and delay.endswith("s"):
            return delay[:-1]
    return ""


def _said(error: Any, body: bytes) -> str:
    """What the provider says in its own words, as text that may contain anything."""
    if isinstance(error, dict):
        for name in ("message", "detail", "error"):
            if isinstance(error.get(name), str):
                return str(error[name])
        return ""
    if isinstance(error, str):
        return error
    text = body.decode("utf-8", "replace")
    if text.lstrip()[:1] == "<":
        title = _TITLE.search(text)
        return f"an HTML page, {title[2].strip()!r}" if title else "an HTML page"
    return text


def _sentence(asked: AskedModel, kind: FailureKind, where: str, said: str) -> str:
    told = plain(said).rstrip(". ")
    says = f"{where}: {told}" if told else where
    return f"{asked.provider}:{asked.model} failed ({says}); {ADVICE[kind]}."


_SECONDS = re.compile(r"\d{1,12}(\.\d{1,12})?")


def retry_at_us(headers: Mapping[str, str], now_us: int) -> int | None:
    """The instant that the headers (in lower case) name, at most a day ahead; None if they name none.

    `retry-after-ms` is OpenAI's; `retry-after` has seconds or a date.
    """
    wait_s = _seconds(headers.get("retry-after-ms", ""), 1 / 1000)
    if wait_s is None:
        wait_s = _seconds(headers.get("retry-after", ""), 1.0)
    if wait_s is None:
        wait_s = _until(headers.get("retry-after", ""), now_us)
    return None if wait_s is None else now_us + round(min(max(wait_s, 0.0), ASKED_S_MAX) * 1_000_000)


def _seconds(text: str, unit_s: float) -> float | None:
    return float(text.strip()) * unit_s if _SECONDS.fullmatch(text.strip()) else None


def _until(text: str, now_us: int) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() - now_us / 1_000_000
    except (ValueError, OverflowError, OSError):
        return None

"""What an error of pydantic-ai, or of a client behind it, means. Pure: an exception in, a failure out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)

from onward.agents.model.failure import Failure, FailureKind
from onward.agents.wire.refusal import Asked, Response, error_in, failed, hide, plain, refusal
from onward.errors import InvalidInput

WORDS: Sequence[tuple[type[ModelAPIError], str]] = (
    (ModelQuotaExceededError, "insufficient_quota"),
    (ModelContextWindowExceededError, "context_length"),
    (ModelRateLimitError, "rate_limit"),
)
"""What the library has found out of an error, in words that `wire/refusal.py` knows."""
REFUSED = (UserError, InvalidInput, TypeError, NotImplementedError, LookupError, AttributeError, ValueError)


def failure_of(
    error: Exception, asked: Asked, *, has_begun: bool, now_us: int, secrets: Sequence[str]
) -> Failure:
    """The failure; `has_begun` says whether pieces of the answer had come."""
    said = plain(hide(str(error), secrets)).rstrip(". ")
    match error:
        case ModelConnectionError():
            return _unreachable(error, asked, has_begun)
        case ModelAPIError():
            found = _refused(error, asked, now_us, secrets)
            return msgspec.structs.replace(found, may_have_cost=found.may_have_cost or has_begun)
        case UnexpectedModelBehavior():
            what = "sent something that is no answer"
            return failed(asked, FailureKind.CUT, what, may_have_cost=True)
        case _ if isinstance(status := getattr(error, "status_code", None), int) and status >= 400:
            response = Response(status=status, headers={}, body=str(error).encode("utf-8", "replace"))
            return refusal(asked, response, now_us=now_us, secrets=secrets)
        case _ if "Credential" in type(error).__name__:
            return failed(asked, FailureKind.AUTH, f"cannot be asked: {said}")
        case _ if has_begun:
            what = f"broke off its answer ({type(error).__name__}: {said})"
            return failed(asked, FailureKind.CUT, what, may_have_cost=True)
        case _ if isinstance(error, REFUSED) or "Config" in type(error).__name__:
            return failed(asked, FailureKind.REQUEST, f"cannot be asked: {said}")
        case _:
            what = f"failed ({type(error).__name__}: {said})"
            return failed(asked, FailureKind.TRANSIENT, what, may_have_cost=True)


def _unreachable(error: ModelConnectionError, asked: Asked, has_begun: bool) -> Failure:
    is_sent = error.phase not in ("pool", "connect")
    if has_begun:
        what = "broke off its answer (the connection was closed)"
        return failed(asked, FailureKind.CUT, what, may_have_cost=True)
    what = "closed the connection before it answered" if is_sent else "could not be reached"
    return failed(asked, FailureKind.TRANSIENT, what, may_have_cost=is_sent)


def _refused(error: ModelAPIError, asked: Asked, now_us: int, secrets: Sequence[str]) -> Failure:
    status, headers = None, {}
    if isinstance(error, ModelHTTPError):
        status = error.status_code
        headers = {name: hide(value, secrets) for name, value in (error.headers or {}).items()}
        headers.setdefault("x-request-id", headers.get("x-amzn-requestid", ""))
    if error.retry_after is not None:
        headers["retry-after"] = f"{error.retry_after:.3f}"
    word = next((word for kind, word in WORDS if isinstance(error, kind)), "")
    told = {
        **_error_in(error.body),
        "message": _said(error),
        "status": f"{error.provider_error_code or ''} {error.provider_error_type or ''} {word}",
    }
    supposed = 400 if isinstance(error, ModelRequestRejectedError) else 500
    body = msgspec.json.encode({"error": told})
    if isinstance(error.body, str) and not told["status"].strip():
        body = _clean(error.body).encode()  # it may be JSON, or a page
    response = Response(status=status or supposed, headers=headers, body=body)
    found = refusal(asked, response, now_us=now_us, secrets=secrets)
    if status is None:
        what = f"failed ({plain(hide(_said(error), secrets)).rstrip('. ')})"
        found = failed(asked, found.kind, what, retry_at_us=found.retry_at_us)
    is_unclear = status is None and found.kind is FailureKind.TRANSIENT
    return msgspec.structs.replace(found, may_have_cost=error.in_stream or is_unclear)


def _said(error: ModelAPIError) -> str:
    """What the provider says, without what the library adds; whatever came, as text that can be sent."""
    found = _error_in(error.body)
    said = [found[name] for name in ("message", "Message", "detail") if isinstance(found.get(name), str)]
    if said:
        return _clean(said[0])
    return "" if isinstance(error, ModelHTTPError) else _clean(error.message)


def _error_in(body: object) -> dict[str, Any]:
    """The texts of an error, which most providers put into an object of its own."""
    found: Any = (error_in(_clean(body).encode()) or body) if isinstance(body, str) else body
    for name in ("error", "Error"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    if isinstance(found, str):
        return {"message": found}
    texts = found.items() if isinstance(found, dict) else ()
    return {name: _clean(text) for name, text in texts if isinstance(name, str) and isinstance(text, str)}


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()

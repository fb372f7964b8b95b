"""How a refusal is told: `application/problem+json`, with a stable code and no text of the machine's.

`Problem` is a refusal of the server itself. Errors of Onward become one by the table `STATUSES`; whatever
else goes wrong is `internal`, and says only which request it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from onward import errors

MEDIA_TYPE = "application/problem+json"
RETRY_S = 1
"""After how many seconds a client may ask again, where nothing better is known."""


class Problem(Exception):
    """A refusal: an HTTP status, a code for programs, and a sentence for people."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        advice: str = "",
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status, self.code, self.detail, self.advice = status, code, detail, advice
        self.details, self.headers = dict(details or {}), dict(headers or {})
        super().__init__(detail)


STATUSES: Mapping[type[errors.OnwardError], int] = {
    errors.OnwardError: 500,
    errors.InvalidPipeline: 422,
    errors.ConditionError: 422,
    errors.StylesheetError: 422,
    errors.InvalidInput: 422,
    errors.PipelineNotFound: 404,
    errors.Refused: 409,
    errors.RunNotFound: 404,
    errors.AmbiguousRun: 409,
    errors.ArtifactNotFound: 404,
    errors.StepNotFound: 404,
    errors.NotificationNotFound: 404,
    errors.ChatNotFound: 404,
    errors.HistoryCorrupt: 409,
    errors.StoreUnavailable: 503,
}
OF_CODES: Mapping[str, int] = {
    "stale_head": 412,
    "key_reused": 422,
    "effect_not_found": 404,
    "token_not_found": 404,
}
"""Refusals that are no conflict."""


def problem_of(error: errors.OnwardError) -> Problem:
    """How an error of Onward is told."""
    code = code_of(error)
    status = OF_CODES.get(code) or next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    if status == 500:
        return INTERNAL
    headers = {"Retry-After": str(RETRY_S)} if status == 503 else {}
    detail = "the database cannot be reached." if status == 503 else str(error)
    details = error.details if isinstance(error, errors.Refused) else {}
    if isinstance(error, errors.InvalidPipeline):
        details = {"diagnostics": list(error.diagnostics)}
    return Problem(status, code, detail, details=details, headers=headers)


def code_of(error: errors.OnwardError) -> str:
    """The stable name of an error: a refusal's own code, else its class in words."""
    if isinstance(error, errors.Refused):
        return error.code
    if isinstance(error, errors.InvalidInput) and not isinstance(error, errors.PipelineNotFound):
        return "invalid_input"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


INTERNAL = Problem(500, "internal", "something went wrong here; the log says more under this request.")


def problem_reply(problem: Problem, request: str) -> Response:
    """The problem as it is sent; `request` is what the log calls the request."""
    said: dict[str, Any] = {
        "type": f"/problems/{problem.code}",
        "title": problem.code.replace("_", " ").capitalize(),
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
    }
    if problem.advice:
        said["advice"] = problem.advice
    body = msgspec.json.encode(said | {"details": problem.details, "request": request})
    return Response(body, problem.status, problem.headers, MEDIA_TYPE)

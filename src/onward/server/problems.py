"""Error replies: `application/problem+json`, with a stable code and without text from the system.

`Problem` is an error of the server itself. Errors of Onward are converted by the table of
`operations.problems`; any other error is `internal`, and contains only the id of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from onward import errors
from onward.operations.problems import code_of, status_of

MEDIA_TYPE = "application/problem+json"
RETRY_S = 1
"""After how many seconds a client may ask again, where nothing better is known."""


UNUSABLE: Mapping[type[Exception], str] = {
    errors.StoreUnavailable: "cannot be reached",
    errors.StoreGone: "was deleted or replaced",
    errors.StoreFull: "has no space left",
    errors.StoreReadOnly: "cannot be written",
    errors.StoreCorrupt: "is damaged",
    errors.SchemaTooNew: "belongs to a newer version",
}
"""What is wrong with a database, without what its machine says of it."""


class Problem(Exception):
    """A refusal: an HTTP status, a code for programs, and a sentence for people.

    `beside` are members of its JSON that only some paths have.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        advice: str = "",
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        beside: Mapping[str, Any] | None = None,
    ) -> None:
        self.status, self.code, self.detail, self.advice = status, code, detail, advice
        self.details, self.headers, self.beside = dict(details or {}), dict(headers or {}), dict(beside or {})
        super().__init__(detail)


def problem_of(error: errors.OnwardError) -> Problem:
    """The problem for an error of Onward."""
    status, code = status_of(error), code_of(error)
    if status == 500:
        return INTERNAL
    headers = {"Retry-After": str(RETRY_S)} if status == 503 else {}
    if status == 503:
        why = next((UNUSABLE[kind] for kind in type(error).__mro__ if kind in UNUSABLE), "cannot be used")
        return Problem(status, code, f"the database {why}.", headers=headers)
    return Problem(status, code, error.message, advice=error.advice, details=error.facts, headers=headers)


INTERNAL = Problem(
    500, "internal", "an internal error occurred; the server's log has the details under this request id."
)


def problem_reply(problem: Problem, request: str) -> Response:
    """The problem as a reply; `request` is the id of the request in the log."""
    said: dict[str, Any] = {
        "type": f"/problems/{problem.code}",
        "title": problem.code.replace("_", " ").capitalize(),
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
    }
    if problem.advice:
        said["advice"] = problem.advice
    body = msgspec.json.encode(said | problem.beside | {"details": problem.details, "request": request})
    return Response(body, problem.status, problem.headers, MEDIA_TYPE)

"""The terms of a request: its idempotency key, what it asks, and the head it was made for."""

from __future__ import annotations

import msgspec

from onward.engine.log.terms import RequestTerms
from onward.model.ids import keyed_run_id
from onward.operations.requests.decisions import ResumeRun, RunChange
from onward.operations.requests.new_runs import NewRun


def terms_of(request: RunChange | ResumeRun | NewRun) -> RequestTerms:
    """The terms of a request. What is asked under its key is everything else in it."""
    asked = {"request": type(request).__name__, **msgspec.structs.asdict(request)}
    key = asked.pop("key")
    if asked.get("pipeline", "") is None:  # so that requests from before registered pipelines stay the same
        del asked["pipeline"]
    body = None if key is None else msgspec.json.encode(asked, order="sorted")
    return RequestTerms(key, body, asked.get("if_head"))


def run_id_of(request: NewRun) -> str | None:
    """The id that the new run is to have: the caller's own, or the one that caller and key come to."""
    if request.run_id is None and request.key is not None:
        return keyed_run_id(request.by, request.key)
    return request.run_id

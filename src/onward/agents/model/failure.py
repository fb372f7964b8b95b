"""How a request to a model fails: a value with a kind, and the one exception that carries it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from onward.agents.model.stream import Usage
from onward.errors import CallFailed


class FailureKind(StrEnum):
    """What went wrong, as far as it decides what to do next."""

    TRANSIENT = "transient"
    """The provider could not be reached, or failed; the same request may succeed later."""
    RATE_LIMIT = "rate_limit"
    """The provider asks to come back later."""
    AUTH = "auth"
    """The key is missing or refused."""
    CREDIT = "credit"
    """The account is out of credit or quota."""
    FORBIDDEN = "forbidden"
    """The key may not use this model, or not from here."""
    REQUEST = "request"
    """The provider refuses the request as it is, or the endpoint is not one."""
    TOO_LONG = "too_long"
    """The conversation does not fit into the model's context."""
    EMPTY = "empty"
    """The model answered nothing."""
    CUT = "cut"
    """The answer began, and then broke off, stalled or made no sense."""


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One failed request. It never holds a key."""

    kind: FailureKind
    message: str
    """One sentence for people: what failed, where, and what to do."""
    provider: str
    model: str
    status: int | None = None
    """The HTTP status, if there was an answer."""
    request_id: str = ""
    retry_at_us: int | None = None
    """When the provider says that it can be asked again."""
    usage: Usage | None = None
    """What the provider counted before it failed."""
    may_have_cost: bool = False
    """Whether the provider may charge for it: it got the request, and did not refuse it."""


class ModelFailed(CallFailed):
    """A request to a model failed; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        self.failure, self.may_have_cost = failure, failure.may_have_cost
        super().__init__(failure.message)

"""Replies about the credentials of a server, and the changes requested with them."""

from __future__ import annotations

from typing import TypedDict

from onward.replies.runs import Instant


class TokenListed(TypedDict):
    """A token, without its secret. `is_valid`: neither expired nor revoked."""

    id: str
    name: str
    roles: list[str]
    made_at: Instant
    expires_at: Instant | None
    used_at: Instant | None
    revoked_at: Instant | None
    is_valid: bool


class TokenList(TypedDict):
    """Tokens, newest first."""

    tokens: list[TokenListed]


class TokenMade(TokenListed):
    """A new token; its text is shown this once."""

    token: str


class AuditShown(TypedDict):
    """A requested change: by whom, from where, and the HTTP status of the reply.

    `status` is null if the server died before it replied. `on_behalf_of` is what the sender said, unchecked.
    """

    n: int
    at: Instant
    by: str
    principal: str
    address: str
    operation: str
    subject: str
    key: str | None
    on_behalf_of: str | None
    status: int | None
    done_at: Instant | None


class AuditPage(TypedDict):
    """Changes, newest first; `cursor` gets the next page, if there may be one."""

    changes: list[AuditShown]
    cursor: int | None

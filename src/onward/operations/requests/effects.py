"""Requests about effects outside steps."""

from __future__ import annotations

from onward.operations.requests.request import Request


class GetEffect(Request, frozen=True, kw_only=True):
    """How the effect under a key stands."""

    key: str


class ForgetEffect(GetEffect, frozen=True, kw_only=True):
    """As if it had never begun: the next call runs it. One that is under way is refused."""


class SettleEffect(GetEffect, frozen=True, kw_only=True):
    """A person found out that an effect in doubt was done: `text` is its output from now on."""

    text: str

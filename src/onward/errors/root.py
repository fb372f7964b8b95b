"""The root of all errors."""

from __future__ import annotations


class OnwardError(Exception):
    """Any error that Onward raises; the message is one sentence for a person."""

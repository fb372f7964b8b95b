"""The arguments of a tool's use, read from what a model wrote: people see exactly what is used. Pure."""

from __future__ import annotations

import json
from typing import Any

from onward.errors import InvalidInput
from onward.model.context import check_value
from onward.redact.redactor import Redactor

CHARACTERS_MAX = 8 * 1024 * 1024
APPROVED_CHARACTERS_MAX = 50_000
"""Somebody must read the arguments of a use that needs approval."""


class Unusable(ValueError):
    """A tool cannot be used with these arguments; the text says why, for the model to correct."""


def read_arguments(written: str, redactor: Redactor) -> dict[str, Any]:
    """The arguments without secrets, also if the model wrote one with escapes.

    What is read here is shown, recorded and used: there is no other form of it.
    """
    if len(written) > CHARACTERS_MAX:
        raise Unusable(
            f"The arguments have {len(written):,} characters; at most {CHARACTERS_MAX:,} are possible. "
            "Do it in smaller parts."
        )
    try:
        arguments = json.loads(written or "{}")
    except (ValueError, RecursionError) as error:
        raise Unusable(
            f"The arguments are not JSON: {error}. Write one whole JSON object; if your answer was cut off, "
            "do it in smaller parts."
        ) from None
    if not isinstance(arguments, dict):
        raise Unusable("The arguments are not a JSON object.")
    try:
        check_value(arguments, "the value")
    except InvalidInput as error:
        raise Unusable(f"The arguments do not fit: {error}") from None
    return redactor.redact_value(arguments)  # type: ignore[no-any-return]


def shown_to_people(arguments: dict[str, Any], redactor: Redactor) -> str:
    """The arguments as a person reads them before a use. Unusable: nobody could see all of them."""
    shown = _visible(json.dumps(arguments, ensure_ascii=False, indent=2))
    if len(shown) > APPROVED_CHARACTERS_MAX:
        raise Unusable(
            f"A person must read the arguments before this is allowed, and they have {len(shown):,} "
            f"characters; use at most {APPROVED_CHARACTERS_MAX:,}."
        )
    if redactor.redact(shown) != shown:
        raise Unusable(
            "A person must read the arguments before this is allowed, and a part of them looks like a "
            "secret, which nobody is shown. Leave it out."
        )
    return shown


def _visible(text: str) -> str:
    """JSON text in which what a screen would not show, or show in another order, is escaped."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else json.dumps(one)[1:-1] for one in text)

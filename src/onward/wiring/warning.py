"""Where warnings go, without the secrets that may be in them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onward.redact.redactor import Redactor

log_warning = logging.getLogger("onward").warning


def redacting(warn: Callable[[str], None], redactor: Redactor) -> Callable[[str], None]:
    """The same `warn`, but what the redactor knows is not told."""
    return lambda text: warn(redactor.redact(text))

"""When a provider says that it can be asked again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from onward.agents.model.retries import ASKED_S_MAX

_SECONDS = re.compile(r"\d{1,12}(\.\d{1,12})?")


def retry_at_us(headers: Mapping[str, str], now_us: int) -> int | None:
    """The instant that the headers (in lower case) name, at most a day ahead; None if they name none.

    `retry-after-ms` is OpenAI's; `retry-after` has seconds or a date.
    """
    wait_s = _seconds(headers.get("retry-after-ms", ""), 1 / 1000)
    if wait_s is None:
        wait_s = _seconds(headers.get("retry-after", ""), 1.0)
    if wait_s is None:
        wait_s = _until(headers.get("retry-after", ""), now_us)
    return None if wait_s is None else now_us + round(min(max(wait_s, 0.0), ASKED_S_MAX) * 1_000_000)


def _seconds(text: str, unit_s: float) -> float | None:
    return float(text.strip()) * unit_s if _SECONDS.fullmatch(text.strip()) else None


def _until(text: str, now_us: int) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() - now_us / 1_000_000
    except (ValueError, OverflowError, OSError):
        return None

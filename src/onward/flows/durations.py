"""Lengths of time as people write them in pipelines, too: "10m", "2d", or a number of seconds."""

from __future__ import annotations

from onward.errors import InvalidInput
from onward.model.values import Seconds, shown
from onward.pipeline.source import as_duration_s


def seconds_of(written: str | float, what: str, *, least: float = 0.001) -> float:
    """The seconds that are meant; InvalidInput names `what` if they cannot be."""
    if isinstance(written, str):
        try:
            written = as_duration_s(written)
        except ValueError as error:
            raise InvalidInput(f"{what} is {shown(written)}; write {error}.") from None
    return Seconds(least).check(written, what)

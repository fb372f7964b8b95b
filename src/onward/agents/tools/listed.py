"""What `onward tools` shows, as values. They are apart, so that whoever prints replies imports no more."""

from __future__ import annotations

from typing import TypedDict


class ToolShown(TypedDict):
    """A tool that agents may be allowed to use, and the rules that hold for it here."""

    name: str
    description: str
    origin: str
    approval: bool
    repeatable: bool
    time_limit_s: float
    output_characters: int


class ToolList(TypedDict):
    """The tools that are set up, the default of `allowed_tools`, names in settings that mean no tool, and
    what could not be asked for.
    """

    tools: list[ToolShown]
    default: list[str]
    unknown: list[str]
    failed: list[str]

"""How registered pipelines are named: NAME, or NAME@VERSION."""

from __future__ import annotations

import re
from typing import NamedTuple

from onward.errors import InvalidInput
from onward.model.values.bounds import INTEGER_MAX, Whole

NAME_CHARACTERS_MAX = 100
VERSION = Whole(1, INTEGER_MAX)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_SHOWN = 40


class Wanted(NamedTuple):
    """A registered pipeline, and its version; None for the one that is enabled."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


def can_be_registered(word: str) -> bool:
    """Whether a word has the form of NAME or NAME@VERSION; then it has no dot and no slash, as files have."""
    name, at, version = word.partition("@")
    return _is_name(name) and (not at or version.isdecimal())


def check_pipeline_name(name: str) -> str:
    """The name, if a pipeline can be registered under it."""
    if not _is_name(name):
        shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        raise InvalidInput(
            f"{shown!r} cannot be the name of a registered pipeline; use 1 to {NAME_CHARACTERS_MAX} "
            "of the characters a-z, A-Z, 0-9, '_' and '-', and no '-' at the beginning."
        )
    return name


def read_wanted(text: str) -> Wanted:
    """The pipeline that is written as NAME or NAME@VERSION."""
    name, at, version = text.partition("@")
    check_pipeline_name(name)
    return Wanted(name, read_version(version) if at else None)


def read_version(text: str) -> int:
    """The number of a version that is written."""
    try:
        return VERSION.read(text)
    except ValueError as error:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise InvalidInput(f"the version {shown!r} is not {error}.") from None


def _is_name(name: str) -> bool:
    return len(name) <= NAME_CHARACTERS_MAX and _NAME.fullmatch(name) is not None

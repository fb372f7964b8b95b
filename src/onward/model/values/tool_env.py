"""Which environment variables commands get: an allow-list, so that keys of providers stay out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

import msgspec

ALWAYS = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR", "TERM", "PWD")


class Variables(msgspec.Struct, frozen=True):
    """The names of the variables that a process has (`present`), and of those that its commands get."""

    passed: frozenset[str]
    present: frozenset[str]


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Whether a variable is one of these; in a pattern, `*` stands for any characters."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def missing_now(then: Collection[str], now: Collection[str]) -> list[str]:
    """The variables that commands got then and do not get now, but for those of a terminal and a user."""
    return sorted(name for name in then if name not in now and not is_named(name, ALWAYS))

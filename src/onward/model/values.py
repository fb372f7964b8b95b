"""What numbers, times and tags may be, and which providers, tools and variables are known by name.

Flags, settings, attributes of a pipeline, arguments of the Python API and imported files are held against
the bounds here before anything is done with them. Every database can store what is within them, and every
clock can wait for it.

Commands get only the environment variables of an allow-list, so that keys of providers stay out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from onward.errors import InvalidInput

INTEGER_MAX = 2**63 - 1
"""Larger numbers would not survive a database column."""
DURATION_S_MAX = 100 * 365 * 86_400
"""A century: longer waits overflow an instant in microseconds and mean nothing."""
INSTANT_US_MAX = 253_402_300_799_000_000
"""The last second of the year 9999: later instants cannot be written as text."""
COUNT_MAX = 2**53
"""More than anybody ever counts to, one by one: there is always a next number."""
Number = Annotated[int, Meta(ge=-INTEGER_MAX - 1, le=INTEGER_MAX)]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Instant = Annotated[int, Meta(ge=0, le=INSTANT_US_MAX)]
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[0-9]{1,19}(\.[0-9]{1,19})?")
SHOWN_MAX = 40


class Whole(msgspec.Struct, frozen=True):
    """A whole number from `least` to `most`."""

    least: int
    most: int

    def read(self, text: str) -> int:
        """The number that is written; ValueError says what was expected."""
        if not _WHOLE.fullmatch(text) or not self.least <= int(text) <= self.most:
            raise ValueError(str(self))
        return int(text)

    def check(self, value: object, what: str) -> int:
        """The value itself; InvalidInput names `what` if it is anything else."""
        if type(value) is not int or not self.least <= value <= self.most:
            raise InvalidInput(f"{what} is {shown(value)}, which is not {self}.")
        return value

    def __str__(self) -> str:
        return f"a whole number from {self.least} to {self.most}"


_NUMBERS = (int, float)


class Seconds(msgspec.Struct, frozen=True):
    """A number of seconds of at least `least`, and at most a century."""

    least: float = 0.0

    def read(self, text: str) -> float:
        """The seconds that are written; ValueError says what was expected."""
        if not _DECIMAL.fullmatch(text) or not self.least <= float(text) <= DURATION_S_MAX:
            raise ValueError(str(self))
        return float(text)

    def check(self, value: object, what: str) -> float:
        """The value itself; InvalidInput names `what` if it is anything else."""
        # Neither infinity nor what is no number at all compares as being within.
        is_number = isinstance(value, _NUMBERS) and not isinstance(value, bool)
        if not is_number or not self.least <= value <= DURATION_S_MAX:  # type: ignore[operator]
            raise InvalidInput(f"{what} is {shown(value)}, which is not {self}.")
        return value  # type: ignore[return-value]

    def __str__(self) -> str:
        return f"a number of seconds from {self.least:g} to {DURATION_S_MAX}"


def shown(value: object) -> str:
    """A value for a message: a number may have any number of digits."""
    text = repr(value) if not isinstance(value, int) or abs(value) <= 10**SHOWN_MAX else "a very large number"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def whole_text(text: str) -> str:
    """The text as a database can hold it: halves of a character that came apart are joined, or replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


PRIORITY = Whole(-(2**31), 2**31 - 1)
EVENT = Whole(0, INTEGER_MAX)
POSITION = Whole(0, INTEGER_MAX)
INSTANT = Whole(0, INSTANT_US_MAX)
ATTEMPT = Whole(1, INTEGER_MAX)
LISTED = Whole(0, 2**31)
LIMIT = Whole(1, 2**31 - 1)
KEPT = Whole(0, INTEGER_MAX)
CONCURRENCY = Whole(1, 1_000)
PORT = Whole(0, 65_535)
GIBIBYTES = Whole(1, 2**20)
WAIT = Seconds()
GRACE = Seconds(0.001)
"""How long a step may take to finish: with none, the first signal would be the second."""
LEASE = Seconds(1.0)
"""A renewal at every third of it must come through a busy machine and a network in time."""


# -- times as people and programs outside see them: instants, and how long something takes --------------
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400


@lru_cache(maxsize=256)  # the end of a step is the beginning of the next, and in several files
def rfc3339(at_us: int) -> str:
    """Microseconds since 1970 as RFC 3339, UTC."""
    at = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def instant_of(at: datetime) -> int:
    """A time as microseconds since 1970; ValueError if it does not say in which zone it is."""
    if at.utcoffset() is None:
        raise ValueError("a time with its zone, such as 2030-01-31T09:00:00Z")
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, (since.days * DAY_S + since.seconds) * 1_000_000 + since.microseconds)


def read_rfc3339(text: str) -> int:
    """RFC 3339 as microseconds since 1970; ValueError says what was expected."""
    try:
        return instant_of(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError("a time with its zone, such as 2030-01-31T09:00:00Z") from None


def span(seconds: float) -> str:
    """How long something took: two digits that matter."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1_000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S:.0f} min {seconds % MINUTE_S:02.0f} s"
    if seconds < DAY_S:
        return f"{seconds // HOUR_S:.0f} h {seconds % HOUR_S // MINUTE_S:02.0f} min"
    return f"{seconds // DAY_S:.0f} d {seconds % DAY_S // HOUR_S:.0f} h"


# -- tags: words that whoever creates a run gives it, to find it by --------------------------------------
TAG_CHARACTERS_MAX, TAGS_MAX = 64, 32
_FORM = rf"^[\w.:/=@+-]{{1,{TAG_CHARACTERS_MAX}}}\Z"
_TAG = re.compile(_FORM)
Tags = Annotated[tuple[Annotated[str, Meta(pattern=_FORM)], ...], Meta(max_length=TAGS_MAX)]


def checked_tags(tags: Collection[object]) -> tuple[str, ...]:
    """The tags in order, each once; InvalidInput names one that cannot be used."""
    if not tags:
        return ()
    found = set[str]()
    for tag in tags:
        if not isinstance(tag, str) or not _TAG.match(tag):
            raise InvalidInput(
                f"the tag {shown(tag)} cannot be used; write 1 to {TAG_CHARACTERS_MAX} letters, digits "
                "and . _ : / = @ + -"
            )
        found.add(tag)
    if len(found) > TAGS_MAX:
        raise InvalidInput(f"a run has at most {TAGS_MAX} tags, and these are {len(found)}.")
    return tuple(sorted(found))


def tag_column(tags: Collection[str]) -> str:
    """The tags as rows have them: in order, each between two spaces of its own."""
    return "".join([f" {tag} " for tag in sorted(tags)]) if tags else ""


def tags_in(column: str) -> list[str]:
    """The tags of a row."""
    return column.split()


def tag_pattern(tags: Iterable[str]) -> str:
    """What the column of a run with all these tags looks like; `*` stands for anything."""
    return f"*{'*'.join(f' {tag} ' for tag in sorted(tags))}*"


# -- providers of models that need no settings but a key: their addresses and their variables ------------
WIRE_FORMATS = ("openai", "anthropic", "google")
"""The wire formats: OpenAI's chat completions, Anthropic's messages, Google's generateContent."""

OTHER_FORMAT = "pydantic-ai"
"""The format of a provider that speaks none of these, and is asked through a library."""


class KnownProvider(msgspec.Struct, frozen=True):
    """A provider that is there without being described."""

    name: str
    format: str
    base_url: str
    key_variable: str
    url_variable: str


KNOWN_PROVIDERS: Mapping[str, KnownProvider] = {
    known.name: known
    for known in (
        KnownProvider("openai", "openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        KnownProvider(
            "anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
        ),
        KnownProvider(
            "google",
            "google",
            "https://generativelanguage.googleapis.com",
            "GEMINI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
        ),
    )
}


# -- the tools that Onward itself offers to agents -------------------------------------------------------
READ_TOOL, WRITE_TOOL, EDIT_TOOL, LIST_TOOL, SEARCH_TOOL, SHELL_TOOL = (
    "read",
    "write",
    "edit",
    "list",
    "search",
    "shell",
)
HTTP_GET_TOOL, HTTP_SEND_TOOL = "http_get", "http_send"
BUILT_IN_TOOLS = (
    READ_TOOL,
    WRITE_TOOL,
    EDIT_TOOL,
    LIST_TOOL,
    SEARCH_TOOL,
    SHELL_TOOL,
    HTTP_GET_TOOL,
    HTTP_SEND_TOOL,
)


# -- the environment variables that commands get ---------------------------------------------------------
ALWAYS_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR", "TERM", "PWD")


class Variables(msgspec.Struct, frozen=True):
    """The names of the variables that a process has (`present`), and of those that its commands get."""

    passed: frozenset[str]
    present: frozenset[str]


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Whether a variable is one of these; in a pattern, `*` stands for any characters."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def missing_now(then: Collection[str], now: Collection[str]) -> list[str]:
    """The variables that commands got then and do not get now, but for those of a terminal and a user."""
    return sorted(name for name in then if name not in now and not is_named(name, ALWAYS_PASSED))

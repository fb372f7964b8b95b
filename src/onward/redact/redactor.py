"""Replaces known secrets, and what looks like one, in texts, values and bytes, whole or in pieces.

Of text that comes in pieces, only what may be the beginning of a secret is held back, so that a secret never
passes, wherever the pieces were cut, and the pieces put together are what the whole would have become.

The user's own patterns (`[redact]` of the settings' file) are each for a secret that is in one line. What a
pattern would match across lines, or across pieces of a very long line, is not looked for: so that text that
comes in pieces is redacted as if it came at once.

`make_redactor` knows where secrets are: which variables hold one, and the password of an address.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from onward.errors import InvalidInput
from onward.redact.patterns import (
    VALUE_CHARACTERS_MIN,
    WELL_KNOWN,
    Matcher,
    Pattern,
    SecretSpan,
    cores_of,
    forms_of,
)

LINE_CHARACTERS_MAX = 65_536
MARK = "[redacted]"


def redact_lines(text: str, own: Sequence[re.Pattern[str]]) -> str:
    """The text without what the patterns match."""
    return "".join(_clean(line, own) for line in _pieces(text))


class LineStream:
    """Text that comes in pieces: line by line."""

    def __init__(self, own: Sequence[re.Pattern[str]]) -> None:
        self._own, self._line = own, ""

    def feed(self, text: str) -> str:
        """What can be passed on: whole lines."""
        *whole, self._line = [*_pieces(self._line + text), ""]
        if whole and not _is_whole(whole[-1]):
            self._line = whole.pop()
        return "".join(_clean(line, self._own) for line in whole)

    def finish(self) -> str:
        """The rest."""
        line, self._line = self._line, ""
        return _clean(line, self._own)


def _pieces(text: str) -> Iterator[str]:
    """The lines with their ends; a very long one in pieces."""
    at = 0
    while at < len(text):
        end = text.find("\n", at, at + LINE_CHARACTERS_MAX) + 1 or min(at + LINE_CHARACTERS_MAX, len(text))
        yield text[at:end]
        at = end


def _is_whole(line: str) -> bool:
    return line.endswith("\n") or len(line) >= LINE_CHARACTERS_MAX


def _clean(line: str, own: Sequence[re.Pattern[str]]) -> str:
    end = "\n" if line.endswith("\n") else ""
    text = line.removesuffix("\n")
    for pattern in own:
        text = pattern.sub(lambda match: MARK if match[0] else "", text)
    return text + end


PLAIN_MARK = "[redacted]"
_NUMBER_MIN = 10 ** (VALUE_CHARACTERS_MIN - 1)
_UNFIT = re.compile(r"[^\w .:/@-]")


class Redactor:
    """Knows secrets by name. More can become known at any time; what was stored before stays as it is.

    Safe to use from any thread. Without secrets and patterns it `is_empty`, and every text stays as it is.
    """

    def __init__(
        self,
        secrets: Mapping[str, str] | None = None,
        *,
        patterns: Sequence[Pattern] = WELL_KNOWN,
        own: Sequence[re.Pattern[str]] = (),
    ) -> None:
        """`own` are patterns of the user's, each for a secret that is in one line."""
        self._patterns, self.own = tuple(patterns), tuple(own)
        self._forms: dict[str, str] = {}
        self._cores: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        self.refused: tuple[str, ...] = ()
        """The names of secrets that cannot be redacted: their values are too short, or ordinary words."""
        self.matcher = Matcher({}, self._patterns)
        self.is_empty = not (self._patterns or self.own)
        """Whether there is nothing to look for."""
        for name, value in (secrets or {}).items():
            self.add(name, value)

    def add(self, name: str, value: str) -> bool:
        """Redact this value from now on, as `[redacted NAME]`. False if it is too short for that."""
        if len(value) < VALUE_CHARACTERS_MIN or value in PLAIN_MARK:
            if value and name not in self.refused:
                self.refused = (*self.refused, name)
            return False
        self._know(dict.fromkeys(forms_of(value), name), dict.fromkeys(cores_of(value), name))
        return True

    def take(self, other: Redactor) -> None:
        """Redact what the other knows, too."""
        self._know(other._forms, other._cores)

    def _know(self, more: Mapping[str, str], cores: Mapping[str, str]) -> None:
        forms = {**more, **self._forms} if self._forms else {**more}
        if len(forms) != len(self._forms):
            self._cores = {**cores, **self._cores}
            self._forms, self._marks = forms, {}
            self.matcher = Matcher(forms, self._patterns, self._cores)
            self.is_empty = False  # `forms` has more than before, never less

    def redact(self, text: str) -> str:
        """The text without secrets."""
        if self.matcher.may_match(text):
            text = self.replaced(text, self.matcher.spans(text))
        return redact_lines(text, self.own) if self.own else text

    def knows(self, text: str) -> list[str]:
        """The names of the known secrets in the text, whatever else it looks like."""
        return list(dict.fromkeys(name for form, name in self._forms.items() if form in text))

    def replaced(self, text: str, spans: Sequence[SecretSpan]) -> str:
        """The text with a mark for each of its secrets; those that overlap have one, of the first's name."""
        parts: list[str] = []
        done = 0
        for span in spans:
            if span.start >= done:
                parts += (text[done : span.start], self._mark(span.name))
            done = max(done, span.end)
        parts.append(text[done:])
        return "".join(parts)

    def _mark(self, name: str) -> str:
        mark = self._marks.get(name)
        if mark is None:
            mark = f"[redacted {_UNFIT.sub('', name)[:64]}]"
            if self.matcher.spans(mark):  # a name that has another secret in it
                mark = PLAIN_MARK
            self._marks[name] = mark
        return mark

    def redact_value(self, value: Any) -> Any:
        """A JSON value without secrets, keys and whatever is inside too. The same object if it has none.

        A number whose digits are a secret becomes a text.
        """
        kind = type(value)
        if kind is str:
            return self.redact(value)
        if kind is bool or value is None:
            return value
        if kind is dict or isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, list | tuple):
            inside = [self.redact_value(one) for one in value]
            if all(new is old for new, old in zip(inside, value, strict=True)):
                return value
            return inside if isinstance(value, list) else tuple(inside)
        if isinstance(value, str):
            return self.redact(str(value))
        if isinstance(value, int | float) and abs(value) >= _NUMBER_MIN:
            text = self.redact(str(value))
            return value if text == str(value) else text
        return value

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        found: dict[Any, Any] = {}
        is_same = True
        for key, inside in value.items():
            new_key = self.redact_value(key)
            is_same = is_same and new_key is key
            number = 2
            while new_key in found or (new_key is not key and new_key in value):
                new_key, number = f"{self.redact_value(key)} ({number})", number + 1
            found[new_key] = self.redact_value(inside)
            is_same = is_same and found[new_key] is inside
        return value if is_same else found

    def redact_bytes(self, data: bytes) -> bytes:
        """The same for bytes, which need not be text."""
        text = data.decode("utf-8", "surrogateescape")
        clean = self.redact(text)
        return data if clean == text else clean.encode("utf-8", "surrogateescape")


NOTHING_SECRET = Redactor(patterns=())
"""For what has no secrets: every text stays as it is."""


class RedactingStream:
    """Redacts text that comes in pieces."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor, self._held = redactor, ""
        self._before = ""  # the last character that was passed on: some secrets begin only after certain ones
        self._lines = LineStream(redactor.own) if redactor.own else None

    def feed(self, text: str) -> str:
        """What can be passed on of the text so far."""
        return self._to_lines(self._passed(text))

    def finish(self) -> str:
        """The rest. What is fed after this is another text."""
        offset, text = len(self._before), self._before + self._held
        rest = self._clean(text)[offset:]
        self._held = self._before = ""
        return self._to_lines(rest) + (self._lines.finish() if self._lines is not None else "")

    def _passed(self, text: str) -> str:
        matcher = self._redactor.matcher
        offset, text = len(self._before), self._before + self._held + text
        cut = max(offset, matcher.begins_at(text))
        spans = matcher.spans(text) if matcher.may_match(text) else []
        while (straddling := [span.since for span in spans if span.since < cut < span.until]) != []:
            cut = min(straddling)
        cut = max(offset, cut)
        if cut == offset:
            self._held = text[offset:]
            return ""
        passed = self._redactor.replaced(text[:cut], [span for span in spans if span.end <= cut])[offset:]
        self._before, self._held = text[cut - 1 : cut], text[cut:]
        return passed

    def _clean(self, text: str) -> str:
        matcher = self._redactor.matcher
        return self._redactor.replaced(text, matcher.spans(text)) if matcher.may_match(text) else text

    def _to_lines(self, text: str) -> str:
        return text if self._lines is None else self._lines.feed(text)


class RedactingBytes:
    """The same for bytes, which need not be text."""

    def __init__(self, redactor: Redactor) -> None:
        self._text = RedactingStream(redactor)
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, data: bytes) -> bytes:
        """What can be passed on of the bytes so far."""
        return self._text.feed(self._decoder.decode(data)).encode("utf-8", "surrogateescape")

    def finish(self) -> bytes:
        """The rest."""
        rest = self._text.feed(self._decoder.decode(b"", True))
        self._decoder.reset()
        return (rest + self._text.finish()).encode("utf-8", "surrogateescape")


def cleaner_of(
    redactor: Callable[[], Redactor], *, streams: Collection[str] = ("stdout", "stderr")
) -> Callable[[str], RedactingBytes | None]:
    """What takes secrets out of the streams of a command; None for a stream that stays as it is."""

    def clean(stream: str) -> RedactingBytes | None:
        knows = redactor()
        return None if knows.is_empty or stream not in streams else RedactingBytes(knows)

    return clean


KNOWN = ("env", "files", "off", "patterns", "well_known")


class RedactSettings(msgspec.Struct, frozen=True):
    """Variables and files whose values are secrets, patterns of the user's own, and what is switched off."""

    env: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()
    well_known: bool = True
    off: bool = False


DEFAULT_REDACT = RedactSettings()


def read_redact(table: object, *, file: str, path: Callable[[str], str]) -> RedactSettings:
    """The table of a file; `path` says what its paths mean."""
    if not isinstance(table, dict):
        raise InvalidInput(f"redact in {file} is {table!r}; write a table [redact].")
    where = f"[redact] in {file}"
    unknown = sorted(table.keys() - set(KNOWN))
    if unknown:
        raise InvalidInput(f"{where} sets {', '.join(unknown)}; known settings are {', '.join(KNOWN)}.")
    for name in ("well_known", "off"):
        if not isinstance(table.get(name, False), bool):
            raise InvalidInput(f"{name} of {where} is {table[name]!r}; write true or false.")
    return RedactSettings(
        env=_texts(where, "env", table),
        files=tuple(path(name) for name in _texts(where, "files", table)),
        patterns=tuple(_pattern(where, pattern) for pattern in _texts(where, "patterns", table)),
        well_known=table.get("well_known", True),
        off=table.get("off", False),
    )


def _texts(where: str, name: str, table: Mapping[str, object]) -> tuple[str, ...]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise InvalidInput(f"{name} of {where} is {found!r}; write a list of strings.")
    return tuple(found)


def _pattern(where: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidInput(
            f"the pattern {pattern!r} of {where} is not a regular expression: {error}."
        ) from None


_HOLDS_SECRET = re.compile(
    r"(?:^|_)(?:(?:API)?KEY|PAT|AUTH|CREDENTIALS?|PASS|PASSWD)$|TOKEN$|PASSWORD|PASSPHRASE|SECRET",
    re.IGNORECASE,
)
# Named like secrets, and none.
_HARMLESS = re.compile("^ONWARD_IDEMPOTENCY_KEY$|PUBLIC", re.IGNORECASE)
_SWITCHES = frozenset({"0", "1", "on", "off", "yes", "no", "true", "false", "none"})
DATABASE = "database password"


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by its name."""
    return bool(
        _HOLDS_SECRET.search(name) and not _HARMLESS.search(name) and value and value.lower() not in _SWITCHES
    )


def password_of(address: str) -> str | None:
    """The password in the address of a database."""
    if "://" not in address:
        return None
    try:
        parts = urlsplit(address)
        return unquote(parts.password) if parts.password else parse_qs(parts.query).get("password", [None])[0]
    except ValueError:
        return None


def make_redactor(how: RedactSettings, secrets: Mapping[str, str]) -> Redactor:
    """The redactor of a process."""
    if how.off:
        return Redactor(patterns=())
    patterns = WELL_KNOWN if how.well_known else ()
    return Redactor(secrets, patterns=patterns, own=how.patterns)

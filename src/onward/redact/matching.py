"""Where the secrets of a text are, and where its end may be the beginning of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from onward.redact.forms import VALUE_CHARACTERS_MIN
from onward.redact.patterns import SHORTEST, Pattern

_HEAD = VALUE_CHARACTERS_MIN
_SIGNS = ("-", "_", ":", "A", "J", "earer ")  # of one character where that is possible: found the fastest
_WORD, _WORD_MIN = re.compile("[A-Za-z0-9]+"), 4


class Span(NamedTuple):
    """A part of a text that is a secret. `since` to `until`: with what shows that it is one."""

    start: int
    end: int
    name: str
    since: int
    until: int


class Matcher:
    """Knows forms of secrets, each with the name of its secret, and patterns.

    A text is searched for signs: parts that several forms or heads share. For texts without secrets that is
    many times as fast as one regular expression of them all.
    """

    def __init__(self, forms: Mapping[str, str], patterns: Sequence[Pattern]) -> None:
        self._forms, self._patterns = forms, patterns
        self._by_sign = (
            *_by_sign(dict.fromkeys(pattern.head for pattern in patterns), _sign_of_head),
            *_by_sign(forms, _longest_word),
        )
        self._shortest = SHORTEST if patterns else VALUE_CHARACTERS_MIN
        # Beginnings that are looked up, because a search for them would find too much.
        self._short = {form[:size] for form in forms for size in range(1, _HEAD)} | {
            pattern.head[:size] for pattern in patterns for size in range(1, len(pattern.head))
        }
        self._short_max = max(map(len, self._short), default=0)

    def may_match(self, text: str) -> bool:
        """Whether there may be a secret; quick, and nearly always no."""
        if len(text) < self._shortest:
            return False
        # Not any(): a generator would cost more than the search, and every text that is stored comes here.
        for sign, needles in self._by_sign:
            if sign in text:
                for needle in needles:
                    if needle in text:
                        return True
        return False

    def spans(self, text: str) -> list[Span]:
        """The secrets of the text, by their beginnings, and of those the longest first. Some may overlap."""
        return sorted(self._found(text), key=lambda span: (span.start, -span.end))

    def _found(self, text: str) -> Iterator[Span]:
        for form, name in self._forms.items():
            at = text.find(form)
            while at >= 0:
                yield Span(at, at + len(form), name, at, at + len(form))
                at = text.find(form, at + 1)
        for pattern in self._patterns:
            for match in pattern.matches(text):
                start, end = match.span(match.re.groups)
                yield Span(start, end, pattern.name, *match.span())

    def begins_at(self, text: str) -> int:
        """Where the text's end may be the beginning of a secret; its length if nowhere."""
        size = len(text)
        first = size
        for length in range(min(self._short_max, size), 0, -1):
            if text[size - length :] in self._short:
                first = size - length
                break
        for form in self._forms:
            first = min(first, _begins_at(text, form))
        for pattern in self._patterns:
            first = min(first, pattern.begins_at(text))
        return first


def _by_sign(
    needles: Iterable[str], sign_of: Callable[[str], str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The needles, grouped by a part that they share."""
    found: dict[str, list[str]] = {}
    for needle in needles:
        known = next((sign for sign in found if sign in needle), None)
        found.setdefault(sign_of(needle) if known is None else known, []).append(needle)
    return tuple((sign, tuple(group)) for sign, group in found.items())


def _sign_of_head(head: str) -> str:
    """What is looked for first: a part of the head that few words have, and else the head."""
    return next((sign for sign in _SIGNS if sign in head), head)


def _longest_word(form: str) -> str:
    """The part of a form that its other encodings have too, if it is long enough to be rare."""
    word = max(_WORD.findall(form), key=len, default="")
    return word if len(word) >= _WORD_MIN else form


def _begins_at(text: str, form: str) -> int:
    """The same for one form, of which the text's end has at least a whole head."""
    size = len(text)
    at = text.find(form[:_HEAD], max(0, size - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return at
        at = text.find(form[:_HEAD], at + 1)
    return size

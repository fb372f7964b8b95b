"""Replaces known secrets, and what looks like one, in texts, values and bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from onward.redact.forms import VALUE_CHARACTERS_MIN, forms_of
from onward.redact.lines import redact_lines
from onward.redact.matching import Matcher, Span
from onward.redact.patterns import WELL_KNOWN, Pattern

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
        forms = {**self._forms}
        for form in forms_of(value):
            forms.setdefault(form, name)
        self._know(forms)
        return True

    def take(self, other: Redactor) -> None:
        """Redact what the other knows, too."""
        self._know({**self._forms, **{f: n for f, n in other._forms.items() if f not in self._forms}})

    def _know(self, forms: dict[str, str]) -> None:
        if len(forms) != len(self._forms):
            self._forms, self._marks = forms, {}
            self.matcher = Matcher(forms, self._patterns)
            self.is_empty = False  # `forms` has more than before, never less

    def redact(self, text: str) -> str:
        """The text without secrets."""
        if self.matcher.may_match(text):
            text = self.replaced(text, self.matcher.spans(text))
        return redact_lines(text, self.own) if self.own else text

    def knows(self, text: str) -> list[str]:
        """The names of the known secrets in the text, whatever else it looks like."""
        return list(dict.fromkeys(name for form, name in self._forms.items() if form in text))

    def replaced(self, text: str, spans: Sequence[Span]) -> str:
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

"""Text and bytes that come in pieces.

Only what may be the beginning of a secret is held back, so that a secret never passes, wherever the pieces
were cut, and the pieces put together are what the whole would have become.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection

from onward.redact.lines import LineStream
from onward.redact.redactor import Redactor


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

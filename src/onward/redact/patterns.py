"""What a secret looks like, and where a text has one.

A known secret has several forms in which programs print it: as it is, in base64, in a URL, in JSON, in JSON
within JSON, as Python shows it. Base64 may be wrapped: line breaks are taken out to look for it. An unknown
one is found by a table of well-known forms. Each row has a `head`, a text that every such secret has near its
beginning, so that most texts are done with after looking for it; the whole form; and what a text looks like
whose end may be the beginning of one, for text that comes in pieces. Both are bounded: longer than `longest`
is none.

`Matcher` says where the secrets of a text are, and where its end may be the beginning of one.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from urllib.parse import quote, quote_plus

VALUE_CHARACTERS_MIN = 8
"""Shorter values are in too many ordinary texts to be replaced."""
LINE_CHARACTERS_MIN = 16
"""Of a value with several lines, each line of this length is a secret too: programs print them one by one."""
_JSON_ESCAPES = "", "&<>", "&<>='", "\"&'+<>`"
"""What programs write as \\u0026 in JSON that needs no escape: none, Go's, Gson's, and those of .NET."""
_HEX_ESCAPE, _PERCENT = re.compile(r"\\u[0-9a-f]{4}"), re.compile("%[0-9A-F]{2}")
_BREAK = re.compile(r"\r?\n|(?:\\r)?\\n")
"""Between two lines of base64; also as it is written inside a JSON text."""
_BREAKS_BEGUN = ("\\r\\", "\\r", "\r", "\\")
_BEFORE_BREAK_MIN = 4
"""Fewer characters of a secret before a break are no sign of it: nearly every line ends with such."""


def forms_of(value: str) -> list[str]:
    """Every form of the value, each once, the longest first."""
    found = {form for form in _forms(value) if len(form) >= VALUE_CHARACTERS_MIN}
    return sorted(found, key=lambda form: (-len(form), form))


def _forms(value: str) -> Iterator[str]:
    for text in (value, *_lines(value)):
        yield text
        yield from _in_json(text)
        yield repr(text)[1:-1]  # as errors show it
        yield ascii(text)[1:-1]
        yield from _of_both_cases(
            quote(text, safe="", errors="surrogateescape"),
            quote(text, errors="surrogateescape"),
            quote_plus(text, errors="surrogateescape"),
        )
    for core in cores_of(value):
        yield core
        yield from _of_both_cases(quote(core, safe=""))
        yield core.replace("/", "\\/")


def _of_both_cases(*encoded: str) -> Iterator[str]:
    """Percent-encoded texts, with hexadecimal digits in upper case and in lower case."""
    for text in encoded:
        yield text
        yield _PERCENT.sub(lambda match: match[0].lower(), text)


def _lines(value: str) -> list[str]:
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) < 2:
        return []
    return [line for line in lines if len(line) >= LINE_CHARACTERS_MIN and not line.startswith("-----")]


def _in_json(value: str) -> Iterator[str]:
    """As a JSON text has it, and as JSON has it that has that JSON as a text."""
    for escaped in _JSON_ESCAPES:
        for text in set(_json_texts(value, escaped)):
            yield text
            yield from _json_texts(text, "")
            yield from _json_texts(text, escaped)


def _json_texts(value: str, escaped: str) -> Iterator[str]:
    """With and without escapes for what is not ASCII, and for the slash, which some escape."""
    for only_ascii in (True, False):
        text = json.dumps(value, ensure_ascii=only_ascii)[1:-1]
        if '"' in escaped:
            text = text.replace('\\"', "\\u0022")
        for character in escaped.replace('"', ""):
            text = text.replace(character, f"\\u{ord(character):04x}")
        for cased in (text, _HEX_ESCAPE.sub(lambda match: f"\\u{match[0][2:].upper()}", text)):
            yield cased
            yield cased.replace("/", "\\/")


def cores_of(value: str) -> list[str]:
    """What a base64 text has of the value, wherever the value begins in what was encoded; each once.

    Characters that also depend on what is before or after the value are left out. Each is also without its
    beginning, which may be alone at the end of a line.
    """
    found: dict[str, None] = {}
    data = value.encode("utf-8", "surrogateescape")
    for before, left_out in ((0, 0), (1, 2), (2, 3)):
        size = before + len(data)
        end = size // 3 * 4 + size % 3
        core = base64.b64encode(bytes(before) + data).decode()[left_out:end]
        for text in (core, core[_BEFORE_BREAK_MIN - 1 :]):
            if len(text) >= VALUE_CHARACTERS_MIN:
                found |= {text: None, text.replace("+", "-").replace("/", "_"): None}
    return list(found)


TOKEN_MAX, KEY_MAX = 4_096, 16_384
SHORTEST = 6
"""No form is shorter: this is the password in `://:x@` with what shows that it is one."""


@dataclass(frozen=True)
class Pattern:
    """One form. If `whole` has a group, only that is the secret, and the rest shows that it is one."""

    name: str
    head: str
    whole: str
    begun: str
    longest: int

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return re.compile(self.whole)

    @cached_property
    def _begun(self) -> re.Pattern[str]:
        return re.compile(rf"(?:{self.begun})\Z")

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """The secrets of this form, each with what shows that it is one."""
        if self.head in text:
            yield from self._whole.finditer(text)

    def begins_at(self, text: str) -> int:
        """Where the text's end may be the beginning of such a secret; its length if nowhere."""
        since = max(0, len(text) - self.longest)
        if text.find(self.head, since) < 0:
            return len(text)
        match = self._begun.search(text, since)
        return len(text) if match is None else match.start()


def _token(
    name: str, head: str, characters: str, least: int, most: int = TOKEN_MAX, *, keeps_head: bool = False
) -> Pattern:
    """A head and then at least so many characters of a kind, not in the middle of a word."""
    start = rf"(?<![A-Za-z0-9_]){re.escape(head)}"
    inside = f"[{characters}]"
    whole = f"({inside}{{{least},{most}}})" if keeps_head else f"{inside}{{{least},{most}}}"
    return Pattern(name, head, start + whole, f"{start}{inside}{{0,{most}}}", len(head) + most)


_WORD, _DASHED = "A-Za-z0-9", "A-Za-z0-9_-"
_KIND, _BODY = "[A-Z0-9 ]", rf"(?:[^-]|-(?!----)){{0,{KEY_MAX}}}"
_USER, _PASSWORD = r"""[^\s/:@"'<>\\]{0,256}""", r"""[^\s/@"'<>\\]"""

WELL_KNOWN: tuple[Pattern, ...] = (
    _token("api key", "sk-", _DASHED, 20, 512),
    _token("Stripe key", "sk_live_", _WORD, 16, 512),
    _token("Stripe key", "rk_live_", _WORD, 16, 512),
    *(_token("GitHub token", head, _WORD, 30, 512) for head in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    _token("GitHub token", "github_pat_", _WORD + "_", 22, 512),
    _token("GitLab token", "glpat-", _DASHED, 20, 512),
    *(
        _token("Slack token", head, _DASHED, 20, 512)
        for head in ("xoxb-", "xoxp-", "xoxa-", "xoxs-", "xapp-")
    ),
    *(_token("AWS key", head, "A-Z0-9", 16, 16) for head in ("AKIA", "ASIA")),
    _token("Google key", "AIza", _DASHED, 35, 35),
    _token("Hugging Face token", "hf_", _WORD, 30, 512),
    _token("npm token", "npm_", _WORD, 36, 512),
    _token("PyPI token", "pypi-", _DASHED, 50, 1_024),
    *(
        _token("bearer token", head, r"A-Za-z0-9._~+/=-", 20, keeps_head=True)
        for head in ("Bearer ", "bearer ")
    ),
    Pattern(
        "JSON web token",
        "eyJ",
        r"(?<![A-Za-z0-9_])eyJ[\w-]{8,2048}\.eyJ[\w-]{8,8192}\.[\w-]{16,2048}",
        r"(?<![A-Za-z0-9_])eyJ[\w-]{0,2048}(?:\.[\w-]{0,8195}(?:\.[\w-]{0,2048})?)?",
        13_000,
    ),
    Pattern(
        "password",
        "://",
        rf"://{_USER}:(?!\*+@)({_PASSWORD}{{1,512}})@",
        rf"://{_USER}(?::{_PASSWORD}{{0,512}})?",
        3 + 256 + 1 + 512,
    ),
    Pattern(
        "private key",
        "-----BEGIN ",
        rf"-----BEGIN {_KIND}{{0,40}}PRIVATE KEY-----{_BODY}-----END {_KIND}{{0,40}}PRIVATE KEY-----",
        rf"-----BEGIN {_KIND}{{0,51}}"
        rf"(?:-{{0,5}}|(?<=PRIVATE KEY)-----{_BODY}-{{0,5}}(?:{_KIND}{{1,55}}-{{0,5}})?)",
        KEY_MAX + 200,
    ),
)


_HEAD = VALUE_CHARACTERS_MIN
_SIGNS = ("-", "_", ":", "A", "J", "earer ")  # of one character where that is possible: found the fastest
_LETTERS, _LETTERS_MIN = re.compile("[A-Za-z0-9]+"), 4


class SecretSpan(NamedTuple):
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

    def __init__(
        self, forms: Mapping[str, str], patterns: Sequence[Pattern], cores: Mapping[str, str] | None = None
    ) -> None:
        """`cores` are those of the forms that are base64, which may be wrapped."""
        self._forms, self._patterns, self._cores = forms, patterns, cores or {}
        size = _BEFORE_BREAK_MIN
        self._line_ends = {core[at : at + size] for core in self._cores for at in range(len(core) - size)}
        self._core_max = max(map(len, self._cores), default=0)
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
        return bool(self._cores) and self._may_be_wrapped(text)

    def _may_be_wrapped(self, text: str) -> bool:
        """Whether a line ends with a few characters that a secret in base64 has."""
        return any(text[end - _BEFORE_BREAK_MIN : end] in self._line_ends for end in _breaks(text))

    def spans(self, text: str) -> list[SecretSpan]:
        """The secrets of the text, by their beginnings, and of those the longest first. Some may overlap."""
        return sorted(self._found(text), key=lambda span: (span.start, -span.end))

    def _found(self, text: str) -> Iterator[SecretSpan]:
        for form, name in self._forms.items():
            at = text.find(form)
            while at >= 0:
                yield SecretSpan(at, at + len(form), name, at, at + len(form))
                at = text.find(form, at + 1)
        for pattern in self._patterns:
            for match in pattern.matches(text):
                start, end = match.span(match.re.groups)
                yield SecretSpan(start, end, pattern.name, *match.span())
        if self._cores and self._may_be_wrapped(text):
            yield from self._wrapped(_Joined(text))

    def _wrapped(self, joined: _Joined) -> Iterator[SecretSpan]:
        """The secrets in base64 that goes over several lines."""
        for core, name in self._cores.items():
            at = joined.text.find(core)
            while at >= 0:
                if joined.breaks_after(at, len(core)):
                    start, end = joined.original(at), joined.original(at + len(core) - 1) + 1
                    yield SecretSpan(start, end, name, start, end)
                at = joined.text.find(core, at + 1)

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
        return min(first, self._wrapped_begins_at(text)) if self._cores else first

    def _wrapped_begins_at(self, text: str) -> int:
        """The same for base64 of which one line or more are there, and perhaps a part of a break."""
        tail = text[-4 * self._core_max :]
        partly = next((begun for begun in _BREAKS_BEGUN if tail.endswith(begun)), "")
        whole = tail.removesuffix(partly)
        is_near = bool(partly) and whole[-_BEFORE_BREAK_MIN:] in self._line_ends
        if not is_near and not self._may_be_wrapped(whole):
            return len(text)
        joined, first = _Joined(whole), len(whole)
        for core in self._cores:
            at = _begins_at(joined.text, core, _BEFORE_BREAK_MIN)
            while at < len(joined.text):
                if is_near or joined.breaks_after(at, len(joined.text) + 1 - at):
                    first = min(first, joined.original(at))
                    break
                at = _begins_at(joined.text, core, _BEFORE_BREAK_MIN, at + 1)
        return len(text) if first == len(whole) else len(text) - len(tail) + first


def _breaks(text: str) -> Iterator[int]:
    """Where lines end."""
    for sign, before in (("\n", "\r"), ("\\n", "\\r")):
        at = text.find(sign)
        while at >= 0:
            yield at - len(before) if text.endswith(before, 0, at) else at
            at = text.find(sign, at + 1)


class _Joined:
    """A text without its line breaks, and where each of its characters was."""

    def __init__(self, text: str) -> None:
        self._starts, self._moved, parts, done = [0], [0], list[str](), 0
        for match in _BREAK.finditer(text):
            parts.append(text[done : match.start()])
            done = match.end()
            self._starts.append(match.start() - self._moved[-1])
            self._moved.append(self._moved[-1] + match.end() - match.start())
        self.text = "".join((*parts, text[done:]))

    def original(self, at: int) -> int:
        return at + self._moved[bisect_right(self._starts, at) - 1]

    def breaks_after(self, at: int, size: int) -> bool:
        """Whether there is a break in so many characters from here, and not too near to the first."""
        number = bisect_right(self._starts, at)
        return number < len(self._starts) and at + _BEFORE_BREAK_MIN <= self._starts[number] < at + size


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
    word = max(_LETTERS.findall(form), key=len, default="")
    return word if len(word) >= _LETTERS_MIN else form


def _begins_at(text: str, form: str, least: int = _HEAD, since: int = 0) -> int:
    """The same for one form, of which the text's end has at least a whole head."""
    size = len(text)
    head = form[:least]
    at = text.find(head, max(since, size - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return at
        at = text.find(head, at + 1)
    return size

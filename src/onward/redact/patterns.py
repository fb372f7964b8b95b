"""What looks like a secret: a table of well-known forms.

Each row has a `head`, a text that every such secret has near its beginning, so that most texts are done with
after looking for it; the whole form; and what a text looks like whose end may be the beginning of one, for
text that comes in pieces. Both are bounded: longer than `longest` is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

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

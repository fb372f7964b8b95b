"""Every form in which a known secret is promised to be found, in every place.

The forms are made here by other code than that which is tested. A form is found if no eight characters of it
are left: base64 shares the first and last of them with what is before and after.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.redact.redactor import RedactingBytes, RedactingStream, Redactor
from tests.chance import examples

SECRETS = {
    "a key": "live_51HxYt9Qz7Lk2Mn8Pv4Rb6",
    "odd characters": "p\u00e4ssword/+\"x\\y&z<9>'=`$ 1",
    "long": "".join(map(chr, range(35, 127))) * 3,
}
Print = Callable[[str], str]


def escaped(characters: str, *, upper: bool = False) -> Print:
    """JSON of a program that writes these characters as \\u0026."""

    def printed(text: str) -> str:
        found = json.dumps(text)
        for one in characters:
            code = f"{ord(one):04X}" if upper else f"{ord(one):04x}"
            found = found[0] + found[1:-1].replace('\\"' if one == '"' else one, f"\\u{code}") + found[-1]
        return re.sub(r"\\u([0-9a-f]{4})", lambda m: f"\\u{m[1].upper()}", found) if upper else found

    return printed


def lower(text: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), text)


def wrapped(before: int, *, width: int = 76, end: str = "\n", url: bool = False) -> Print:
    """Base64 in lines, of a text in which the secret begins after so many others."""

    def printed(text: str) -> str:
        whole = b"x" * before + text.encode() + b"the rest"
        code = (base64.urlsafe_b64encode(whole) if url else base64.b64encode(whole)).decode()
        return end.join(code[at : at + width] for at in range(0, len(code), width)) + end

    return printed


FORMS: dict[str, Print] = {
    "as it is": str,
    "as Python shows it": repr,
    "in JSON": json.dumps,
    "in JSON, not only ASCII": lambda text: json.dumps(text, ensure_ascii=False),
    "in JSON with escaped slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "in JSON as Go writes it": escaped("&<>"),
    "in JSON as Gson writes it": escaped("&<>='"),
    "in JSON as .NET writes it": escaped("\"&'+<>`", upper=True),
    "in JSON as PHP can write it": escaped("\"&'+<>`"),
    "in JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "in JSON in JSON, not only ASCII": lambda text: json.dumps(
        json.dumps(text, ensure_ascii=False), ensure_ascii=False
    ),
    "in JSON of Go in JSON": lambda text: json.dumps(escaped("&<>")(text)),
    "in JSON of Go in JSON of Go": lambda text: escaped("&<>")(escaped("&<>")(text)),
    "in a URL": lambda text: quote(text, safe=""),
    "in a path": quote,
    "in a form": quote_plus,
    "in a URL, lower case": lambda text: lower(quote(text, safe="")),
    "in a path, lower case": lambda text: lower(quote(text)),
    "in a form, lower case": lambda text: lower(quote_plus(text)),
    "in base64 in a URL, lower case": lambda text: lower(quote(base64.b64encode(text.encode()), safe="")),
    **{f"in base64 after {before}": wrapped(before, width=10**6) for before in range(3)},
    **{f"in base64 for URLs after {before}": wrapped(before, width=10**6, url=True) for before in range(3)},
    **{f"in base64 of 76 columns after {before}": wrapped(before) for before in range(57)},
    **{f"in base64 of 64 columns after {before}": wrapped(before, width=64) for before in range(0, 48, 5)},
    **{f"in base64 of 76 columns, CRLF, after {n}": wrapped(n, end="\r\n") for n in range(0, 57, 5)},
    **{f"in base64 of 76 columns in JSON after {n}": wrapped(n, end="\\n") for n in range(0, 57, 5)},
    **{f"in base64 of 76 columns for URLs after {n}": wrapped(n, url=True) for n in range(0, 57, 5)},
}


def left(secret: str, printed: str, clean: str) -> list[str]:
    """The pieces of the form that are still there, of eight characters each."""
    alone = printed.replace("\\n", "").replace("\r", "").replace("\n", "")
    joined = clean.replace("\\n", "").replace("\r", "").replace("\n", "")
    code = {base64.b64encode(b"x" * n + secret.encode() + b"the rest").decode()[4:-12] for n in range(3)}
    inside = [one for one in code if one in alone.replace("-", "+").replace("_", "/")]
    needle = inside[0] if inside else alone.strip("\"'\\")
    joined = joined.replace("-", "+").replace("_", "/") if inside else joined
    pieces = (needle[at : at + 8] for at in range(len(needle) - 7))
    return [piece for piece in pieces if piece in joined]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_found_in_every_place(form: str, secret: str) -> None:
    redactor = Redactor({"KEY": secret}, patterns=())
    printed = FORMS[form](secret)
    text = f"before {printed} after"
    clean = redactor.redact(text)
    assert "[redacted KEY]" in clean
    assert left(secret, printed, clean) == []
    assert redactor.redact_value({"a": [text]}) == {"a": [clean]}
    data = text.encode()
    assert redactor.redact_bytes(data) == clean.encode()
    if len(data) < 400:
        for at in range(len(data) + 1):
            assert fed(redactor, data[:at], data[at:]) == clean.encode()
    assert fed(redactor, *(data[at : at + 1] for at in range(len(data)))) == clean.encode()


def fed(redactor: Redactor, *pieces: bytes) -> bytes:
    stream = RedactingBytes(redactor)
    return b"".join([*map(stream.feed, pieces), stream.finish()])


LINES = st.lists(st.text("YWJjMTIz\r\n\\", max_size=20), max_size=6)


@examples(150)
@given(
    st.text("abc123", min_size=8, max_size=40),
    st.lists(st.integers(0, 60), min_size=1, max_size=4),
    st.sampled_from(["\n", "\r\n", "\\n", "\\r\\n"]),
    LINES,
    st.lists(st.integers(0, 1_000), max_size=12),
)
def test_wrapped_base64_is_redacted_however_it_is_cut(
    secret: str, widths: list[int], end: str, around: list[str], places: list[int]
) -> None:
    code, parts = base64.b64encode(secret.encode()).decode(), list[str]()
    for width in widths:
        parts, code = [*parts, code[:width]], code[width:]
    text = "".join(around[::2]) + end.join((*parts, code)) + "".join(around[1::2])
    redactor = Redactor({"KEY": secret}, patterns=())
    whole = redactor.redact(text)
    at = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    for pieces in ([text[start:stop] for start, stop in pairwise(at)], list(text)):
        stream = RedactingStream(redactor)
        assert "".join([*map(stream.feed, pieces), stream.finish()]) == whole

"""However a text is cut into pieces, it is redacted as if it came at once."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.redact.patterns import forms_of
from onward.redact.redactor import LINE_CHARACTERS_MAX, RedactingBytes, RedactingStream, Redactor
from tests.chance import examples
from tests.redact.test_redactor import LOOKS_SECRET

# Few characters, so that secrets overlap, repeat themselves and begin in many places. No brackets, of which
# marks consist.
SECRETS = st.lists(st.text("ab%", min_size=8, max_size=14), min_size=1, max_size=4, unique=True)
SCRAPS = st.text("ab%=YWJ", max_size=12)
LOOKING = [
    *LOOKS_SECRET,
    "sk-",
    "eyJ",
    "://",
    "Bearer ",
    "-----BEGIN ",
    "-----BEGIN PRIVATE KEY-----",
    "a" * 30,
]


@st.composite
def texts(draw: st.DrawFn, secrets: list[str]) -> str:
    forms = [form for secret in secrets for form in forms_of(secret)]
    whole = st.sampled_from([*secrets, *forms])
    part = st.tuples(whole, st.integers(0, 12)).map(lambda one: one[0][: one[1]])
    looking = st.sampled_from(LOOKING)
    return "".join(draw(st.lists(st.one_of(whole, part, SCRAPS, looking, st.just("\n")), max_size=8)))


def cut(text: str, places: list[int]) -> list[str]:
    at = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(at)]


def streamed(redactor: Redactor, pieces: list[str]) -> str:
    stream = RedactingStream(redactor)
    return "".join([*map(stream.feed, pieces), stream.finish()])


@examples(150)
@given(st.data(), SECRETS, st.lists(st.integers(0, 1_000), max_size=12), st.booleans())
def test_any_split_gives_what_the_whole_gives(
    data: st.DataObject, secrets: list[str], places: list[int], has_own: bool
) -> None:
    text = data.draw(texts(secrets))
    own = [re.compile("a%+b"), re.compile(r"W\sJ")] if has_own else []
    redactor = Redactor({f"S{at}": secret for at, secret in enumerate(secrets)}, own=own)
    assert streamed(redactor, cut(text, places)) == redactor.redact(text)
    assert streamed(redactor, list(text)) == redactor.redact(text)


@examples(150)
@given(st.data(), SECRETS)
def test_no_secret_survives_in_any_form(data: st.DataObject, secrets: list[str]) -> None:
    text = data.draw(texts(secrets))
    clean = Redactor({f"S{at}": secret for at, secret in enumerate(secrets)}).redact(text)
    assert not [form for secret in secrets for form in forms_of(secret) if form in clean]


@given(st.text(max_size=60), st.lists(st.integers(0, 1_000), max_size=5))
def test_text_without_a_secret_passes_unchanged(text: str, places: list[int]) -> None:
    redactor = Redactor({"KEY": "\0 never drawn \0 in a text"})
    assert redactor.redact(text) == text
    assert streamed(redactor, cut(text, places)) == text


@given(st.binary(max_size=60), st.binary(max_size=60), st.lists(st.integers(0, 1_000), max_size=8))
def test_bytes_are_redacted_however_they_are_cut(before: bytes, after: bytes, places: list[int]) -> None:
    secret = "geheimnis-äöü-€"
    data, redactor = before + secret.encode() + after, Redactor({"KEY": secret}, patterns=())
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    stream = RedactingBytes(redactor)
    pieces = [stream.feed(data[start:end]) for start, end in pairwise(at)]
    passed = b"".join([*pieces, stream.finish()])
    assert passed == redactor.redact_bytes(data)
    assert secret.encode() not in passed


def test_only_what_may_begin_a_secret_is_held_back() -> None:
    stream = RedactingStream(Redactor({"KEY": "0123456789"}, patterns=()))
    assert stream.feed("hello 012") == "hello "
    assert stream.feed("x") == "012x"
    assert stream.feed("0123456789") == "[redacted KEY]"
    assert stream.feed("01234567") == ""
    assert stream.finish() == "01234567"


def test_a_line_is_passed_on_when_it_ends() -> None:
    stream = RedactingStream(Redactor({"KEY": "0123456789"}))
    assert stream.feed("yes\n") == "yes\n"
    assert stream.feed("Bearer of news\n") == "Bearer of news\n"


def test_a_secret_that_never_ends_is_not_held_for_ever() -> None:
    stream = RedactingStream(Redactor())
    text = "-----BEGIN PRIVATE KEY-----" + "x" * 100_000
    assert len(stream.feed(text)) > 0
    assert stream.feed("y" * 100_000) != ""


@pytest.mark.parametrize("size", [LINE_CHARACTERS_MAX - 1, LINE_CHARACTERS_MAX, LINE_CHARACTERS_MAX + 1])
def test_a_very_long_line_is_passed_on_in_pieces(size: int) -> None:
    redactor = Redactor(patterns=(), own=[re.compile("x{3}")])
    text = "a" * (size - 2) + "xxxx\nxxx"
    assert streamed(redactor, [text[:10], text[10:size], text[size:]]) == redactor.redact(text)
    assert redactor.redact(text).endswith("\n[redacted]")

"""What a redactor replaces, and what it leaves alone."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.redact.patterns import SHORTEST, WELL_KNOWN, forms_of
from onward.redact.redactor import NOTHING_SECRET, Redactor

SECRET = 'pässword/+"x\\y&z 9'
MARK = "[redacted KEY]"


@pytest.fixture
def redactor() -> Redactor:
    return Redactor({"KEY": SECRET})


def test_a_secret_is_replaced_by_its_name(redactor: Redactor) -> None:
    assert redactor.redact(f"before {SECRET} after {SECRET}") == f"before {MARK} after {MARK}"


@pytest.mark.parametrize(
    "printed",
    [
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps({"a": [SECRET]}).replace("/", "\\/"),
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        repr(SECRET),
        ascii(SECRET),
    ],
)
def test_a_secret_is_found_as_programs_print_it(redactor: Redactor, printed: str) -> None:
    clean = redactor.redact(f"x={printed}&y")
    assert MARK in clean
    assert "ssword" not in clean


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
@pytest.mark.parametrize("after", ["", "@", "@h", "@ho"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_is_found_in_base64_wherever_it_begins(
    redactor: Redactor, before: str, after: str, encode: type
) -> None:
    printed = encode(f"{before}{SECRET}{after}".encode()).decode()
    clean = redactor.redact(f"Basic {printed}")
    assert MARK in clean
    assert len(clean.replace(MARK, "").removeprefix("Basic ").strip("=")) <= 8 + len(before) + len(after)


def test_a_long_secret_is_found_in_base64_that_was_wrapped() -> None:
    secret = "".join(map(chr, range(33, 127))) * 3
    printed = base64.encodebytes(secret.encode()).decode()
    clean = Redactor({"KEY": secret}).redact(printed)
    assert not any(line in clean for line in printed.splitlines()[:-1])


def test_each_line_of_a_secret_file_is_a_secret() -> None:
    value = "-----BEGIN THING-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END THING-----\n"
    clean = Redactor({"cert.pem": value}).redact("first: AQEFAASCBKcwggSjAgEAAoIB; -----BEGIN THING-----")
    assert clean == "first: [redacted cert.pem]; -----BEGIN THING-----"


def test_the_longest_of_two_secrets_is_replaced() -> None:
    redactor = Redactor({"SHORT": "abcdefgh", "LONG": "abcdefghij"})
    assert redactor.redact("abcdefghij abcdefgh") == "[redacted LONG] [redacted SHORT]"


def test_of_secrets_that_overlap_nothing_is_left() -> None:
    redactor = Redactor({"A": "0123456789", "B": "6789abcdef"})
    assert redactor.redact("x0123456789abcdefx") == "x[redacted A]x"


@pytest.mark.parametrize("value", ["", "short", "1234567", "redacted"])
def test_a_value_too_short_or_too_ordinary_is_refused_and_named(value: str) -> None:
    redactor = Redactor()
    assert not redactor.add("KEY", value)
    assert not redactor.add("KEY", value)
    assert redactor.refused == (("KEY",) if value else ())
    assert redactor.redact(f"a {value} b") == f"a {value} b"


def test_a_secret_that_becomes_known_later_is_redacted_from_then_on() -> None:
    redactor = Redactor(patterns=())
    assert redactor.redact("0123456789") == "0123456789"
    assert redactor.add("provider", "0123456789")
    assert redactor.redact("0123456789") == "[redacted provider]"


def test_a_name_that_holds_a_secret_is_not_shown() -> None:
    assert Redactor({"of 0123456789": "0123456789"}).redact("<0123456789>") == "<[redacted]>"


def test_values_are_redacted_in_keys_and_at_any_depth() -> None:
    redactor = Redactor({"PIN": "1234567890"})
    value = {"a": ["x 1234567890", {"1234567890": 1}], "b": 1234567890, "c": [True, None, 1.5, 7]}
    assert redactor.redact_value(value) == {
        "a": ["x [redacted PIN]", {"[redacted PIN]": 1}],
        "b": "[redacted PIN]",
        "c": [True, None, 1.5, 7],
    }


def test_keys_that_become_the_same_are_kept_apart() -> None:
    redactor = Redactor({"PIN": "1234567890"})
    value = {"1234567890": 1, "MTIzNDU2Nzg5MA": 2, "[redacted PIN]": 3}
    assert sorted(redactor.redact_value(value).values()) == [1, 2, 3]


def test_a_value_without_secrets_stays_the_same_object(redactor: Redactor) -> None:
    value = {"a": [1, {"b": "c"}], "d": ("e",)}
    assert redactor.redact_value(value) is value


def test_bytes_that_are_no_text_keep_every_other_byte(redactor: Redactor) -> None:
    data = b"\xff\xfe\x00" + SECRET.encode() + b"\xe3\x80"
    assert redactor.redact_bytes(data) == b"\xff\xfe\x00" + MARK.encode() + b"\xe3\x80"
    assert redactor.redact_bytes(b"\xff\x00\xe3") == b"\xff\x00\xe3"


TOKEN = "Ab3" * 12
LOOKS_SECRET = {
    f"key sk-ant-{TOKEN}!": "key [redacted api key]!",
    f"ghp_{TOKEN}": "[redacted GitHub token]",
    f"github_pat_{TOKEN}_{TOKEN}": "[redacted GitHub token]",
    f"glpat-{TOKEN}": "[redacted GitLab token]",
    f"xoxb-{TOKEN}": "[redacted Slack token]",
    "id AKIAIOSFODNN7EXAMPLE.": "id [redacted AWS key].",
    f"AIza{TOKEN[:35]}": "[redacted Google key]",
    f"Authorization: Bearer {TOKEN}\n": "Authorization: Bearer [redacted bearer token]\n",
    f"eyJ{TOKEN}.eyJ{TOKEN}.{TOKEN}": "[redacted JSON web token]",
    "postgresql://me:hunter2@db/x": "postgresql://me:[redacted password]@db/x",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIE\n-----END RSA PRIVATE KEY-----": (
        "[redacted private key]"
    ),
}


@pytest.mark.parametrize(("text", "clean"), LOOKS_SECRET.items())
def test_what_looks_like_a_secret_is_replaced(text: str, clean: str) -> None:
    assert Redactor().redact(text) == clean
    assert Redactor(patterns=()).redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a risk-assessment-of-the-whole-long-thing",
        "sk-short",
        "see http://host:8080/a@b and ssh://git@host:22/x",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "Bearer of good news",
        "AKIAshort",
        "postgresql://me:***@db/runs",
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert Redactor().redact(text) == text


def test_patterns_of_the_user_match_inside_a_line() -> None:
    redactor = Redactor(own=[re.compile(r"card \d+"), re.compile("x*")])
    assert redactor.redact("a card 4111 b\ncard\n5") == "a [redacted] b\ncard\n5"


def test_nothing_secret_changes_nothing() -> None:
    assert NOTHING_SECRET.is_empty
    assert NOTHING_SECRET.redact(f"ghp_{TOKEN}") == f"ghp_{TOKEN}"


def test_every_pattern_finds_its_own_head() -> None:
    for pattern in WELL_KNOWN:
        assert re.compile(pattern.whole).groups <= 1
        assert pattern.begins_at(f" {pattern.head}") == 1


@given(st.text(":/@-_skAIJzey. x", max_size=SHORTEST - 1))
def test_a_text_that_is_too_short_to_be_looked_at_holds_no_secret(text: str) -> None:
    assert [match for pattern in WELL_KNOWN for match in pattern.matches(text)] == []
    assert Redactor().redact("://:x@") == "://:[redacted password]@"


@given(st.lists(st.text(min_size=8, max_size=20), min_size=1, max_size=4, unique=True), st.data())
def test_every_form_of_every_secret_is_noticed(secrets: list[str], data: st.DataObject) -> None:
    """A text is looked at closely only if it has a sign, which forms share."""
    matcher = Redactor({f"S{at}": secret for at, secret in enumerate(secrets)}).matcher
    form = data.draw(st.sampled_from(forms_of(data.draw(st.sampled_from(secrets)))))
    assert matcher.may_match(f"before {form} after")

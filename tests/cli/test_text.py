"""Nothing that was stored steers a terminal, and numbers are for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.cli.output import age, clean, count, one_line, table, visible, with_script_joined
from onward.model.values import span
from tests.cli.shell import Shell, pipeline

S = 1_000_000
EVIL = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x9b2J\x07\x08back"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07rest", "rest"),
        ("\x1b]52;c;bm8=\x1b\\rest", "rest"),
        ("\x1bPdevice\x1b\\rest", "rest"),
        ("\x9b2Jgone", "gone"),
        ("\x1bcreset", "reset"),
        ("\x1b(0lines", "lines"),
        ("over\rwritten", "overwritten"),
        ("dos\r\nlines", "dos\nlines"),
        ("\u202etxt.exe", "txt.exe"),
        ("never ended \x1b]0;title", "never ended "),
        ("grün → 漢字", "grün → 漢字"),
        ("half \ud800", "half \ufffd"),
    ],
)
def test_a_terminal_is_not_obeyed(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand grün → 漢字\r\n", "two\nlines\tand grün → 漢字\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b]0;a title\x07rest", "\\x1b[2J\\x1b]0;a title\\x07rest"),
        ("never ended \x1b]0;hidden", "never ended \\x1b]0;hidden"),
        ("over\rwritten \u202etxt.exe", "over\nwritten \\u202etxt.exe"),
        ("half \ud800", "half \ufffd"),
    ],
)
def test_what_would_control_a_terminal_is_shown(text: str, shown: str) -> None:
    assert visible(text) == clean(visible(text)) == shown


@given(st.text(st.characters(max_codepoint=0x2100), max_size=40))
def test_no_control_character_ever_comes_through(text: str) -> None:
    shown = clean(text)
    assert not [c for c in shown if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
    assert clean(shown) == shown
    assert "\n" not in one_line(text, 10)
    assert len(one_line(text, 10)) <= 10


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 ms"), (0.0421, "42 ms"), (1.25, "1.2 s"), (59, "59 s"), (61, "1 min 01 s"),
        (3_700, "1 h 01 min"), (90_000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_a_time_span_has_the_digits_that_matter(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 s ago"), (5, "5 s ago"), (61, "1 min ago"), (7_300, "2 h ago"), (90_000 * 3, "3 d ago")],
)
def test_an_age_is_one_number(seconds: int, words: str) -> None:
    assert age(0, seconds * S) == words


def test_a_table_is_aligned_and_counts_have_plurals() -> None:
    assert table(("A", "LONG"), [("first", "x"), ("\x1b[1mb", "y\nz")]) == [
        "A      LONG",
        "first  x",
        "b      y z",
    ]
    assert [count(number, "run") for number in (0, 1, 2_000)] == ["0 runs", "1 run", "2,000 runs"]


@pytest.mark.parametrize(
    ("tokens", "joined"),
    [
        (["run", "a.dot", "--simulate"], ["run", "a.dot", "--simulate="]),
        (["run", "--simulate", "a.dot"], ["run", "--simulate=", "a.dot"]),
        (["run", "a.dot", "--simulate", "s.json"], ["run", "a.dot", "--simulate=s.json"]),
        (["run", "--simulate", "s.json", "t.json"], ["run", "--simulate=s.json", "t.json"]),
        (["run", "--simulate=x", "a.dot"], ["run", "--simulate=x", "a.dot"]),
    ],
)
def test_simulate_takes_a_script_only_if_it_looks_like_one(tokens: list[str], joined: list[str]) -> None:
    assert with_script_joined(tokens) == joined


def test_stored_text_reaches_no_terminal_as_it_is(shell: Shell) -> None:
    """Labels, failure texts, outputs and context values, in every command that prints them."""
    shell.write(
        "evil.py",
        f"import sys\nsys.stdout.write({EVIL!r})\nsys.stderr.write({EVIL!r})\nsys.exit(len(sys.argv) - 1)\n",
    )
    shell.write(
        "evil.dot",
        pipeline(("a", "python3 evil.py"), ("b", "python3 evil.py fail")).replace(
            "start -> a",
            f'start -> ask\n  ask -> a [label="{EVIL}"]\n  ask [shape=hexagon, label="{EVIL}"]\n  a',
        ),
    )
    commands = [
        ("run", "evil.dot", "--run-id", "evil", "--set", f"key={EVIL}", "--answers", "wait"),
        ("answer", "evil"),
        ("resume", "evil", "--dry-run"),
        ("resume", "evil", "--answers", "auto"),
        ("status",),
        ("status", "evil"),
        ("show", "evil"),
        ("events", "evil"),
        ("events", "evil", "--json"),
        ("show", "evil", "--json"),
        ("checkpoints", "evil"),
    ]
    for words in commands:
        done = shell.inside(*words)
        said = done.out + done.err
        assert done.code in (0, 1, 75), done.err
        assert said, words
        assert not [c for c in said if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160], words
    assert "red" in shell.inside("show", "evil").out
    assert shell.read("evil")["context"]["key"] == EVIL

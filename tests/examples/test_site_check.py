"""The build check of the website builder finds what is wrong, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.website import module

PAGE = """<!doctype html>
<html lang="en"><head><title>A</title><link rel="stylesheet" href="style.css"></head>
<body><h1 id="top">A</h1><p>one<p>two<br><a href="#top">up</a> <a href="https://example.org">out</a>
<a href="other.html#x">other</a> <form action="/api/order"></form><img src="a.svg" alt="a">BODY</body></html>
"""
FILES = {"index.html": PAGE, "other.html": PAGE, "style.css": "a { color: red; --x: 1 }", "a.svg": "<svg/>"}


def problems(tmp_path: Path, **files: str) -> list[str]:
    for name, text in {**FILES, **{key.replace("_", "."): value for key, value in files.items()}}.items():
        (tmp_path / name).write_text(text.replace("BODY", ""))
    found: list[str] = module("site_check").problems(tmp_path)
    return found


def test_a_site_without_problems_has_none(tmp_path: Path) -> None:
    script = "const a = /[)}]/; b(`(${a}`, '{'); // (\n/* [ */ if (a) { c(1 / 2); }"
    assert problems(tmp_path, app_js=script, api_py="x = 1\n") == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<div>", "index.html: line 4: <div> is not closed"),
        ("</div>", "index.html: line 4: </div> closes nothing"),
        ("<b><i></b>", "index.html: line 4: <i> is not closed"),
        ('<img src="a.svg">', "index.html: line 4: an img has no alt text"),
        ('<a href="gone.html">x</a>', "index.html: line 4: gone.html does not exist"),
        ('<script src="/gone.js"></script>', "index.html: line 4: /gone.js does not exist"),
        ('<a href="#gone">x</a>', "index.html: line 4: #gone leads nowhere"),
        ('<b id="top"></b>', "index.html: the id top is there 2 times"),
    ],
)
def test_what_is_wrong_with_a_page_is_said_with_its_line(tmp_path: Path, body: str, expected: str) -> None:
    assert problems(tmp_path, index_html=PAGE.replace("BODY", body)) == [expected]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("style_css", "a { color: red", "style.css: 1 braces open a block, and 0 close one"),
        ("style_css", "a { color }", "style.css: 'color' is no declaration"),
        ("style_css", "/* a { }", "style.css: a comment is not closed"),
        ("app_js", "f(1];", "app.js: line 1: ] closes nothing"),
        ("app_js", "\nf(", "app.js: line 2: ( is not closed"),
        ("app_js", "f('a);", "app.js: line 1: a string is not closed"),
        ("index_html", "<html lang=a><h1>x</h1></html>", "index.html: it has no <title>"),
        ("index_html", "<html><title>x</title><h1>x</h1></html>", "index.html: line 1: html has no lang"),
    ],
)
def test_what_is_wrong_with_other_files_is_said(tmp_path: Path, name: str, text: str, expected: str) -> None:
    assert problems(tmp_path, **{name: text}) == [expected]


def test_python_that_does_not_compile_is_found(tmp_path: Path) -> None:
    [found] = problems(tmp_path, api_py="def f(:\n")
    assert found.startswith("api.py: it does not compile: ")


def test_a_site_without_a_first_page_is_no_site(tmp_path: Path) -> None:
    assert module("site_check").problems(tmp_path) == ["index.html is missing"]


def test_hidden_files_and_packages_of_others_are_not_checked(tmp_path: Path) -> None:
    for name in (".git", "node_modules"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.js").write_text("f(")
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("before", "now", "rounds", "expected"),
    [
        (None, 0, 0, ("clean", "no problem is left after 0 rounds")),
        (None, 3, 0, ("again", "3 problems found; round 1 begins")),
        (3, 1, 1, ("again", "1 problem found; round 2 begins")),
        (3, 3, 1, ("stuck", "round 1 did not help: 3 problems now, 3 before it; they are left")),
        (1, 2, 2, ("stuck", "round 2 did not help: 2 problems now, 1 before it; they are left")),
        (3, 1, 2, ("spent", "1 problem left after 2 rounds, which is all there are")),
        (1, 0, 2, ("clean", "no problem is left after 2 rounds")),
    ],
)
def test_remediation_takes_two_rounds_at_most_and_each_must_leave_fewer_problems(
    before: int | None, now: int, rounds: int, expected: tuple[str, str]
) -> None:
    """O0-17."""
    module("site_check")
    assert module("builder").judged(before, now, rounds) == expected

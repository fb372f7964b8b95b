"""The tools for files: what they answer, and that a repeated use changes nothing more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.agents.tools.files import EditRefused, edited
from onward.agents.tools.workspace import PathRefused, Walk, WorkspaceTree, matches
from tests.agents.tools.in_workspace import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    found.close()


async def test_a_file_is_read_whole_or_in_parts(bench: Bench) -> None:
    (bench.root / "x").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    whole = await bench.use("read", path="x")
    assert whole.text == "\n".join(f"line {n}" for n in range(1, 11))
    part = await bench.use("read", path="x", offset=3, limit=2, line_numbers=True)
    assert part.text == "3\tline 3\n4\tline 4\n[lines 3 to 4; the file continues: read it with offset=5]"
    end = await bench.use("read", path="x", offset=9, limit=5)
    assert end.text == "line 9\nline 10\n[lines 9 to 10; the file ends here]"
    assert (await bench.use("read", path="x", offset=11)).text == "[x has only 10 lines]"


async def test_a_part_fits_what_the_model_sees_and_says_where_to_go_on(bench: Bench) -> None:
    (bench.root / "x").write_text("".join(f"{n:09}\n" for n in range(1, 501)))
    rules, offset, read = {"output_characters": 1_000}, 1, []
    while True:
        part = (await bench.use("read", path="x", offset=offset, rules=rules)).text
        assert len(part) <= 1_000
        *lines, note = part.split("\n")
        read += lines
        if "the file ends here" in note:
            break
        offset = int(note.removesuffix("]").rpartition("=")[2])
    assert read == [f"{n:09}" for n in range(1, 501)]


async def test_a_huge_file_is_read_in_parts_without_being_loaded(bench: Bench) -> None:
    (bench.root / "x").write_bytes(b"first\n" + b"a" * 70_000 + b"\n" + b"third\n" * 20_000)
    os.truncate(bench.root / "x", 1 << 40)  # a hole of a tebibyte
    begun = await bench.use("read", path="x", limit=1)
    assert begun.text == "first\n[lines 1 to 1; the file continues: read it with offset=2]"
    assert (await bench.use("read", path="x", offset=3, limit=1)).text.startswith("third\n")
    late = await bench.use("read", path="x", offset=30_000)
    assert late.is_error
    assert "more than 268,435,456 bytes into the file" in late.text
    assert (await bench.use("edit", path="x", old="first", new="1")).is_error


async def test_a_line_that_is_too_long_is_shown_from_its_beginning(bench: Bench) -> None:
    (bench.root / "x").write_text("é" * 400_000)
    shown = (await bench.use("read", path="x", rules={"output_characters": 1_000})).text
    assert shown.startswith("é" * 700)
    assert shown.endswith("\n[line 1 continues; it is too long to be shown in full]")
    assert len(shown) <= 1_000


@pytest.mark.parametrize("content", [b"PNG\0\x01", b"\xff\xfeh\0i\0", b"caf\xe9", b"ok\n" * 5_000 + b"\xff"])
async def test_what_is_not_text_is_not_shown_or_changed(bench: Bench, content: bytes) -> None:
    (bench.root / "x").write_bytes(content)
    for answer in (
        await bench.use("read", path="x", limit=100_000),
        await bench.use("edit", path="x", old="ok", new="no", all=True),
    ):
        assert answer.is_error
        assert f"x is not text in UTF-8 ({len(content):,} bytes)" in answer.text
    assert (bench.root / "x").read_bytes() == content


async def test_an_empty_file_and_a_missing_one_are_told_apart(bench: Bench) -> None:
    (bench.root / "empty").touch()
    assert await bench.use("read", path="empty") == await bench.use("read", path="empty")
    assert (await bench.use("read", path="empty")).text == "[empty is empty]"
    missing = await bench.use("read", path="missing")
    assert missing.is_error
    assert missing.text == "there is no missing in the workspace; list shows what there is."


async def test_a_file_is_written_with_its_directories(bench: Bench) -> None:
    written = await bench.use("write", path="a/b/c.txt", content="héllo")
    assert written.text == "wrote the new file a/b/c.txt (6 bytes)."
    assert (bench.root / "a/b/c.txt").read_text() == "héllo"
    again = await bench.use("write", path="a/b/c.txt", content="héllo")
    assert again.text == "a/b/c.txt has this content already (6 bytes); nothing was changed."
    other = await bench.use("write", path="a/b/c.txt", content="x")
    assert other.text == "replaced the content of a/b/c.txt (1 bytes)."


async def test_a_file_keeps_its_mode_and_a_second_name_its_content(bench: Bench) -> None:
    script, twin = bench.root / "run.sh", bench.root / "twin.sh"
    script.write_text("echo 1")
    script.chmod(0o4750)
    os.link(script, twin)
    await bench.use("write", path="run.sh", content="echo 2")
    assert script.stat().st_mode & 0o7777 == 0o750, "not what makes it run as its owner"
    assert twin.read_text() == "echo 1"
    assert list(bench.root.glob(".onward-*")) == []


async def test_what_a_use_left_that_died_is_removed_when_it_is_repeated(bench: Bench) -> None:
    tree = WorkspaceTree(str(bench.root))
    (bench.root / ".onward-mark.part").write_text("half")
    tree.replace(("x",), b"whole", mark="mark")
    assert sorted(path.name for path in bench.root.iterdir()) == ["x"]


async def test_an_edit_replaces_the_only_occurrence(bench: Bench) -> None:
    (bench.root / "x").write_text("a = 1\nb = 2\nc = 1\n")
    done = await bench.use("edit", path="x", old="b = 2", new="b = 3")
    assert done.text == "replaced `old` once in x (line 2)."
    twice = await bench.use("edit", path="x", old="= 1", new="= 4")
    assert twice.is_error
    assert "x was not changed: `old` is there 2 times;" in twice.text
    every = await bench.use("edit", path="x", old="= 1", new="= 4", all=True)
    assert every.text == "replaced `old` 2 times in x (line 1, 3)."
    missing = await bench.use("edit", path="x", old="= 9", new="= 8")
    assert missing.is_error
    assert "`old` is there 0 times;" in missing.text
    assert (bench.root / "x").read_text() == "a = 4\nb = 3\nc = 4\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("one two", "two", "three", "one three"),
        ("import a\n", "import a\n", "import a\nimport b\n", "import a\nimport b\n"),
        ("x", "x", "xx", "xx"),
        ("a b c", "b ", "", "a c"),
    ],
)
async def test_an_edit_that_is_repeated_after_a_crash_changes_nothing_more(
    bench: Bench, before: str, old: str, new: str, after: str
) -> None:
    (bench.root / "x").write_text(before)
    first = await bench.use("edit", path="x", old=old, new=new)
    assert (first.is_error, (bench.root / "x").read_text()) == (False, after)
    again = await bench.use("edit", path="x", old=old, new=new)
    assert (again.is_error, (bench.root / "x").read_text()) == (False, after)
    assert again.text.startswith("nothing was changed: x ")


async def test_an_edit_that_looks_made_already_is_told_so(bench: Bench) -> None:
    (bench.root / "x").write_text("f(a)")
    told = await bench.use("edit", path="x", old="a", new="(a)")
    assert "x has `new` already, on line 1, and no other `old`" in told.text
    assert not (await bench.use("edit", path="x", old="f(a)", new="f((a))")).is_error
    assert (bench.root / "x").read_text() == "f((a))"


TEXT = st.text("ab\n", max_size=12).map(str.encode)


@given(TEXT, TEXT, TEXT, st.booleans())
def test_an_edit_made_twice_is_the_edit_made_once(content: bytes, old: bytes, new: bytes, all: bool) -> None:
    try:
        once = edited(content, old, new, all=all)
    except EditRefused:
        return
    twice = edited(once.content, old, new, all=all)
    assert (twice.content, twice.lines) == (once.content, ())


async def test_an_edit_says_that_lines_end_otherwise(bench: Bench) -> None:
    (bench.root / "x").write_bytes(b"a\r\nb\r\n")
    answer = await bench.use("edit", path="x", old="a\nb", new="c")
    assert answer.is_error
    assert answer.text.endswith("The lines of the file end with CR LF.")


async def test_edits_at_the_same_time_all_count(bench: Bench) -> None:
    (bench.root / "x").write_text("".join(f"old {n}\n" for n in range(30)))
    uses = [bench.use("edit", path="x", old=f"old {n}\n", new=f"new {n}\n", key=f"k{n}") for n in range(30)]
    answers = await asyncio.gather(*uses)
    assert [answer.text for answer in answers if answer.is_error] == []
    assert (bench.root / "x").read_text() == "".join(f"new {n}\n" for n in range(30))


async def test_a_directory_with_too_many_entries_is_not_listed(bench: Bench) -> None:
    for number in range(12):
        (bench.root / f"{number}").touch()
    tree = WorkspaceTree(str(bench.root), entries_max=11)
    with pytest.raises(PathRefused, match=r"\. has more than 11 entries; use a command"):
        tree.entries(tree.directory(()), ())


async def test_a_list_is_sorted_and_says_what_things_are(bench: Bench) -> None:
    for name in ("b.py", "a/c.py", "a/d.txt", "node_modules/m/e.py", ".git/config"):
        (bench.root / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.root / name).write_text("12345")
    assert (await bench.use("list")).text == ".git/\na/\nb.py (5 bytes)\nnode_modules/"
    assert (await bench.use("list", path="a")).text == "a/c.py (5 bytes)\na/d.txt (5 bytes)"
    found = await bench.use("list", pattern="*.py")
    assert found.text == "a/c.py (5 bytes)\nb.py (5 bytes)\n[not looked into: .git, node_modules]"
    named = await bench.use("list", path="node_modules", pattern="*.py")
    assert named.text == "node_modules/m/e.py (5 bytes)"
    assert (await bench.use("list", pattern="*.rs", path="a")).text == "[nothing]"


async def test_a_list_is_bounded(bench: Bench) -> None:
    for number in range(1_010):
        (bench.root / f"{number:05}").touch()
    lines = (await bench.use("list")).text.split("\n")
    assert len(lines) == 1_001
    assert lines[-1] == "[10 more are not shown; list a directory, or use a pattern]"
    walk = Walk(WorkspaceTree(str(bench.root)), entries_max=7)
    assert len(list(walk.below(()))) == 7
    assert walk.notes == ["stopped after 7 entries; name a directory"]


async def test_a_name_that_cannot_be_printed_is_escaped(bench: Bench) -> None:
    (bench.root / "a\nb\x1b[2J").touch()
    os.close(os.open(os.fsencode(bench.root) + b"/\xff", os.O_CREAT))
    assert (await bench.use("list")).text == "a\\nb\\x1b[2J (0 bytes)\n\\udcff (0 bytes)"


@pytest.mark.parametrize(
    ("path", "pattern", "fits"),
    [
        ("a/b.py", "*.py", True),
        ("a/b.py", "a/*.py", True),
        ("a/c/b.py", "a/*.py", False),
        ("a/c/b.py", "a/**/*.py", True),
        ("a/b.py", "a/**/*.py", True),
        ("b.py", "**/*.py", True),
        ("x/y", "x/**", True),
        ("a/b.py", "b/*.py", False),
        ("a/b", "./a/b", True),
    ],
)
def test_a_pattern_fits_paths(path: str, pattern: str, fits: bool) -> None:
    assert matches(tuple(path.split("/")), pattern) is fits


def test_a_hostile_pattern_for_names_costs_little() -> None:
    """It would take longer than the universe if it were tried in every way."""
    name = "a" * 250
    assert not matches((name,) * 40, "/".join(["**", "*a*a*a*a*a*a*a*a*b"] * 20))
    assert not matches((name,), "*a" * 200 + "*b")


async def test_a_search_finds_lines(bench: Bench) -> None:
    for name, content in {"a/x.py": "one\ndef f():\n", "b.txt": "DEF\n", "bin": "def \0"}.items():
        (bench.root / name).parent.mkdir(exist_ok=True)
        (bench.root / name).write_text(content)
    assert (await bench.use("search", pattern="^def ")).text == "a/x.py:2: def f():"
    assert (await bench.use("search", pattern="DEF", path="b.txt")).text == "b.txt:1: DEF"
    both = await bench.use("search", pattern="def", ignore_case=True)
    assert both.text == "a/x.py:2: def f():\nb.txt:1: DEF"
    assert (await bench.use("search", pattern="def", glob="*.md")).text == "[no line fits]"
    assert (await bench.use("search", pattern="def", path="a")).text == "a/x.py:2: def f():"
    bad = await bench.use("search", pattern="(")
    assert (bad.is_error, bad.text.startswith("the pattern is not a regular expression: ")) == (True, True)


async def test_a_search_is_bounded(bench: Bench) -> None:
    (bench.root / "x").write_text("hit\n" * 300)
    (bench.root / "long").write_text("hit" + "x" * 1_000)
    (bench.root / "huge").touch()
    os.truncate(bench.root / "huge", 1 << 40)
    lines = (await bench.use("search", pattern="hit", path="x")).text.split("\n")
    assert (len(lines), lines[-1]) == (201, "[only the first 200 lines are shown; search for less]")
    long = await bench.use("search", pattern="hit", glob="long")
    assert len(long.text) < 350
    skipped = await bench.use("search", pattern="nothing")
    assert skipped.text == "[no line fits]\n[too large to be searched: huge]"


@pytest.mark.slow
async def test_a_hostile_expression_is_ended_and_blocks_nobody(bench: Bench) -> None:
    """Python's regular expressions would hold the whole interpreter for years."""
    (bench.root / "a").write_text("here: aab\n")
    (bench.root / "b").write_text("a" * 60 + "\n")
    ended = await bench.use("search", pattern="(a+)+b", rules={"time_limit_s": 4})
    assert ended.is_error
    assert ended.text == (
        "a:1: here: aab\n[not finished: ended after 4 s; write a simpler pattern, or search in less]"
    )


@pytest.mark.parametrize("pattern", ["(?:a{1,65535}){1,65535}" * 20, "(" * 900 + ")" * 900, "a" * 2_001])
async def test_an_expression_that_is_too_big_is_refused(bench: Bench, pattern: str) -> None:
    (bench.root / "a").write_text("b\n")
    answer = await bench.use("search", pattern=pattern, rules={"time_limit_s": 20})
    assert "Traceback" not in answer.text
    assert answer.is_error or answer.text == "[no line fits]"

"""Check a website without a browser: `python site_check.py DIRECTORY` prints what is wrong with its files.

It parses HTML, CSS, JavaScript (brackets and strings) and Python, and follows links between the files.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

VOID = frozenset(
    {
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source"),
        *("track", "wbr"),
    }
)
OPTIONAL_END = frozenset({"li", "p", "td", "th", "tr", "dt", "dd", "option"})
LINKS = {"a": "href", "link": "href", "script": "src", "img": "src", "source": "src", "form": "action"}
CLOSING = {")": "(", "]": "[", "}": "{"}
_ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:|//|/api/|/$)", re.IGNORECASE)
_DECLARATION = re.compile(r"\s*-{0,2}[A-Za-z][\w-]*\s*:\s*\S")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# Strings, comments and regular expressions of JavaScript, so that brackets inside of them do not count.
_QUIET = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`"""
    r"""|(?<=[=(,:!&|?;{}])\s*/(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/""",
    re.DOTALL,
)


def problems(directory: Path) -> list[str]:
    """One sentence for each thing that is wrong, in the order of the files."""
    found = [] if (directory / "index.html").is_file() else ["index.html is missing"]
    for ending, check in CHECKS.items():
        for file in sorted(directory.rglob(f"*{ending}")):
            name = file.relative_to(directory)
            if not any(part.startswith(".") or part == "node_modules" for part in name.parts):
                found += [f"{name}: {one}" for one in check(file, directory)]
    return found


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


class _Page(HTMLParser):
    """Reads a page: which elements are open, what it links, and what it lacks."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.open: list[tuple[str, int]] = []
        self.links: list[tuple[str, int]] = []
        self.ids: Counter[str] = Counter()
        self.elements: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        line, given = self.getpos()[0], dict(attrs)
        self.elements[tag] += 1
        if tag not in VOID:
            self.open.append((tag, line))
        if tag == "img" and not given.get("alt"):
            self.wrong.append(f"line {line}: an img has no alt text")
        if tag == "html" and not given.get("lang"):
            self.wrong.append(f"line {line}: html has no lang")
        if given.get("id"):
            self.ids[str(given["id"])] += 1
        if given.get(LINKS.get(tag, "")):
            self.links.append((str(given[LINKS[tag]]), line))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        names = [name for name, _ in self.open]
        if tag not in names:
            self.wrong.append(f"line {self.getpos()[0]}: </{tag}> closes nothing")
            return
        while self.open:
            name, line = self.open.pop()
            if name == tag:
                return
            if name not in OPTIONAL_END:
                self.wrong.append(f"line {line}: <{name}> is not closed")


def _of_page(page: Path, directory: Path) -> Iterator[str]:
    read = _Page()
    read.feed(_text(page))
    read.close()
    yield from read.wrong
    yield from (f"line {line}: <{name}> is not closed" for name, line in read.open)
    yield from (f"the id {name} is there {times} times" for name, times in read.ids.items() if times > 1)
    yield from (f"it has no <{name}>" for name in ("title", "h1") if not read.elements[name])
    for link, line in read.links:
        path, _, anchor = link.partition("#")
        if path and not _ELSEWHERE.match(path):
            target = directory / path[1:] if path.startswith("/") else page.parent / path
            if not target.exists():
                yield f"line {line}: {path} does not exist"
        elif not path and anchor and anchor not in read.ids:
            yield f"line {line}: #{anchor} leads nowhere"


def _of_css(file: Path, directory: Path) -> Iterator[str]:
    text = _COMMENT.sub("", _text(file))
    if "/*" in text:
        yield "a comment is not closed"
    if text.count("{") != text.count("}"):
        yield f"{text.count('{')} braces open a block, and {text.count('}')} close one"
        return
    for block in re.finditer(r"\{([^{}]*)\}", text):
        for part in block[1].split(";"):
            if part.strip() and not _DECLARATION.match(part):
                yield f"{' '.join(part.split())!r} is no declaration"


def _of_script(file: Path, directory: Path) -> Iterator[str]:
    opened: list[tuple[str, int]] = []
    bare = _QUIET.sub(lambda quiet: "\n" * quiet[0].count("\n"), _text(file))
    for number, line in enumerate(bare.split("\n"), 1):
        for sign in line:
            if sign in CLOSING.values():
                opened.append((sign, number))
            elif sign in CLOSING and (not opened or opened.pop()[0] != CLOSING[sign]):
                yield f"line {number}: {sign} closes nothing"
                return
            elif sign in "\"'`":
                yield f"line {number}: a string is not closed"
                return
    if opened:
        yield f"line {opened[-1][1]}: {opened[-1][0]} is not closed"


def _of_python(file: Path, directory: Path) -> Iterator[str]:
    try:
        compile(_text(file), file.name, "exec")
    except (SyntaxError, ValueError) as error:
        yield f"it does not compile: {error}"


CHECKS = {".html": _of_page, ".css": _of_css, ".js": _of_script, ".py": _of_python}


if __name__ == "__main__":
    found = problems(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(found) or "nothing is wrong")
    sys.exit(1 if found else 0)

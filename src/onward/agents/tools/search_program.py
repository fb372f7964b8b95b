"""A search as a program of its own: a regular expression that never ends is ended with its process.

Python's regular expressions hold the interpreter while they match, so that not even a thread beside them
could set a limit. It reads one request from standard input and prints what it finds, a line at a time. It
is started without site-packages: it and what it imports use the standard library only.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from onward.agents.tools.workspace import (
    Path,
    PathRefused,
    TreeEntry,
    Walk,
    WorkspaceTree,
    check_pattern,
    content_of,
    matches,
    shown,
)

FILE_BYTES_MAX = 4 * 1024 * 1024
LINE_CHARACTERS_MAX = 300
MATCHES_MAX = 200
PATTERN_CHARACTERS_MAX = 2_000
MEMORY_BYTES_MAX = 1 << 30
Say = Callable[[dict[str, Any]], None]


def main() -> None:
    """Answer the request on standard input."""
    with suppress(ValueError, OSError):  # not every system has such a limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    search(json.loads(sys.stdin.buffer.read()), _say)


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def search(request: dict[str, Any], say: Say) -> None:
    """Say what is found: `match` for a line, `note` for what was left out, `refused` for a bad request."""
    try:
        tree = WorkspaceTree(request["root"], request["own"])
        parts = tree.parts(request["path"])
        expression = _compiled(request["pattern"], request["ignore_case"])
        glob = check_pattern(request["glob"])
        walk, large = Walk(tree), list[str]()
        count = 0
        for found in _files(tree, walk, parts, glob):
            if found.size > FILE_BYTES_MAX:
                large.append(shown(found.parts))
                continue
            for line in _matching(tree, found, expression):
                count += 1
                if count > MATCHES_MAX:
                    say({"note": f"only the first {MATCHES_MAX} lines are shown; search for less"})
                    return
                say({"match": line})
        notes = walk.notes
        if large:
            notes.append(f"too large to be searched: {', '.join(large[:20])}")
        for note in notes:
            say({"note": note})
        say({"done": True})
    except (PathRefused, MemoryError, RecursionError) as error:
        say({"refused": str(error) or "the pattern needs too much memory; write a simpler one."})


def _compiled(pattern: str, ignores_case: bool) -> re.Pattern[str]:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PathRefused(f"the pattern is longer than {PATTERN_CHARACTERS_MAX:,} characters.")
    try:
        return re.compile(pattern, re.IGNORECASE if ignores_case else 0)
    except (re.error, OverflowError) as error:
        raise PathRefused(f"the pattern is not a regular expression: {error}.") from None


def _files(tree: WorkspaceTree, walk: Walk, parts: Path, glob: str) -> Iterator[TreeEntry]:
    if parts:
        above = tree.entries(tree.directory(parts[:-1]), parts[:-1])
        named = next((one for one in above if one.parts == parts), None)
        if named is not None and not named.is_directory:
            with tree.opened(parts):  # or why not
                yield named
            return
    for found in walk.below(parts):
        if not found.is_directory and not found.note and (not glob or matches(found.parts, glob)):
            yield found


def _matching(tree: WorkspaceTree, found: TreeEntry, expression: re.Pattern[str]) -> Iterator[str]:
    try:
        with tree.opened(found.parts) as file:
            content = content_of(file, FILE_BYTES_MAX)
    except PathRefused:
        return  # it was removed or exchanged meanwhile, or may not be read
    if content is None or b"\0" in content:
        return
    for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        if expression.search(line):
            text = line.rstrip("\r")
            cut = "…" if len(text) > LINE_CHARACTERS_MAX else ""
            yield f"{shown(found.parts)}:{number}: {text[:LINE_CHARACTERS_MAX]}{cut}"

"""The tools that read and change files: read, write, edit and list.

To replace a text in a file is a pure function, and the same edit made twice changes nothing more. A process
may die between writing the file and recording it; the use is then repeated. An occurrence of the old text
that is part of the new one counts as replaced, and an edit whose result would hold the old text again is
refused: nobody could tell the second time from the first.

There is one writer at a time in a workspace: two edits of a file must not overwrite each other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from weakref import WeakValueDictionary

import msgspec
from blake3 import blake3

from onward.agents.model import Tool
from onward.agents.tools import port
from onward.agents.tools.workspace import (
    Path,
    PathRefused,
    TreeEntry,
    Walk,
    WorkspaceTree,
    check_pattern,
    check_text,
    content_of,
    matches,
    read_text,
    shown,
)
from onward.errors import CallTimedOut
from onward.model.values import EDIT_TOOL, LIST_TOOL, READ_TOOL, WRITE_TOOL
from onward.threads import in_thread

WRITERS = (WRITE_TOOL, EDIT_TOOL)
LINES = 2_000
LINES_MAX = 100_000
WRITTEN_BYTES_MAX = 4 * 1024 * 1024
LISTED_MAX = 1_000
LINES_NAMED_MAX = 20
_READING = port.ToolRules()
_WRITING = port.ToolRules(is_concurrent=False)
Work = Callable[[WorkspaceTree, port.ToolUse], str]


class FileTool(msgspec.Struct, frozen=True):
    """A tool whose work is done in a thread, in a tree that it cannot leave. Each may be repeated."""

    described: Tool
    work: Work
    own: Sequence[str]
    turns: WriteTurns
    rules: port.ToolRules

    async def run(self, use: port.ToolUse) -> port.ToolAnswer:
        limit_s = use.rules.time_limit_s
        try:
            async with asyncio.timeout(limit_s):
                return port.ToolAnswer(await in_thread(self._worked, use))
        except TimeoutError:
            raise CallTimedOut(use.key, limit_s) from None  # a thread cannot be ended

    def _worked(self, use: port.ToolUse) -> str:
        tree = WorkspaceTree(port.workspace_of(use.step), self.own)
        try:
            with self.turns.of(tree.root) if self.described.name in WRITERS else nullcontext():
                return self.work(tree, use)
        except (PathRefused, EditRefused) as error:
            raise port.ToolRefused(str(error)) from None


def file_tools(own: Sequence[str]) -> list[FileTool]:
    """All of them; `own` are the paths of Onward's files."""
    turns = WriteTurns()
    return [
        FileTool(described, work, own, turns, _WRITING if described.name in WRITERS else _READING)
        for described, work in _TOOLS
    ]


def _read(tree: WorkspaceTree, use: port.ToolUse) -> str:
    given = use.arguments
    parts = tree.parts(given["path"])
    with tree.opened(parts) as file:
        return read_text(
            file,
            name=shown(parts),
            offset=given.get("offset", 1),
            limit=given.get("limit", LINES),
            characters=use.rules.output_characters,
            is_numbered=given.get("line_numbers", False),
        )


def _write(tree: WorkspaceTree, use: port.ToolUse) -> str:
    parts = tree.parts(use.arguments["path"], writes=True)
    content = _encoded(use.arguments["content"], "content")
    before = _content_if_any(tree, parts)
    if before == content:
        return f"{shown(parts)} has this content already ({len(content):,} bytes); nothing was changed."
    if tree.replace(parts, content, mark=_mark(use)):
        return f"wrote the new file {shown(parts)} ({len(content):,} bytes)."
    return f"replaced the content of {shown(parts)} ({len(content):,} bytes)."


def _edit(tree: WorkspaceTree, use: port.ToolUse) -> str:
    given = use.arguments
    parts = tree.parts(given["path"], writes=True)
    with tree.opened(parts) as file:
        content = _whole(file, parts)
    check_text(content, shown(parts), len(content))
    old, new = _encoded(given["old"], "old"), _encoded(given["new"], "new")
    try:
        found = edited(content, old, new, all=given.get("all", False))
    except EditRefused as error:
        raise EditRefused(f"{shown(parts)} was not changed: {error}") from None
    if found.lines:
        if len(found.content) > WRITTEN_BYTES_MAX:
            raise EditRefused(f"{shown(parts)} would have more than {WRITTEN_BYTES_MAX:,} bytes.")
        tree.replace(parts, found.content, mark=_mark(use))
    return _told(found, shown(parts))


def _told(found: Edited, name: str) -> str:
    if found.lines:
        lines = ", ".join(map(str, found.lines[:LINES_NAMED_MAX]))
        more = ", …" if len(found.lines) > LINES_NAMED_MAX else ""
        times = "once" if len(found.lines) == 1 else f"{len(found.lines)} times"
        return f"replaced `old` {times} in {name} (line {lines}{more})."
    if found.found_at is not None:
        return (
            f"nothing was changed: {name} has `new` already, on line {found.found_at}, and no other `old`. "
            "If you mean another change, include more of the text around it."
        )
    return f"nothing was changed: {name} does not have the text that was to be removed."


def _list(tree: WorkspaceTree, use: port.ToolUse) -> str:
    parts = tree.parts(use.arguments.get("path", "."))
    pattern = check_pattern(use.arguments.get("pattern", ""))
    notes: list[str] = []
    if pattern:
        walk = Walk(tree)
        found = [one for one in walk.below(parts) if matches(one.parts, pattern)]
        notes = walk.notes
    else:
        found = tree.entries(tree.directory(parts), parts)
    if len(found) > LISTED_MAX:
        notes.append(f"{len(found) - LISTED_MAX:,} more are not shown; list a directory, or use a pattern")
    lines = [_line(one) for one in found[:LISTED_MAX]] or ["[nothing]"]
    return "\n".join([*lines, *(f"[{note}]" for note in notes)])


def _line(found: TreeEntry) -> str:
    name = shown(found.parts)
    if found.is_directory:
        return f"{name}/"
    return f"{name} ({found.note})" if found.note else f"{name} ({found.size:,} bytes)"


def _content_if_any(tree: WorkspaceTree, parts: Path) -> bytes | None:
    """What is there now, if it is small enough to compare; what cannot be replaced is refused later."""
    try:
        with tree.opened(parts) as file:
            return _whole(file, parts)
    except PathRefused:
        return None


def _whole(file: int, parts: Path) -> bytes:
    content = content_of(file, WRITTEN_BYTES_MAX)
    if content is None:
        raise PathRefused(f"{shown(parts)} has more than {WRITTEN_BYTES_MAX:,} bytes; use a command.")
    return content


def _encoded(text: str, what: str) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise PathRefused(f"`{what}` is not valid text.") from None
    if len(content) > WRITTEN_BYTES_MAX:
        raise PathRefused(f"`{what}` has more than {WRITTEN_BYTES_MAX:,} bytes; write less at a time.")
    return content


def _mark(use: port.ToolUse) -> str:
    return blake3(use.key.encode()).hexdigest()[:16]


_PATH = port.text_schema("Path of the file, relative to the workspace.")
_TOOLS: Sequence[tuple[Tool, Work]] = (
    (
        Tool(
            READ_TOOL,
            "Read a text file of the workspace. A long file is read in parts: the end of the answer says how "
            "to go on.",
            port.arguments_schema(
                {"path": _PATH},
                {
                    "offset": {"type": "integer", "minimum": 1, "description": "First line to read (1)."},
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": LINES_MAX,
                        "description": f"How many lines to read ({LINES}).",
                    },
                    "line_numbers": {"type": "boolean", "description": "Put its number before each line."},
                },
            ),
        ),
        _read,
    ),
    (
        Tool(
            WRITE_TOOL,
            "Write a text file of the workspace, with its directories. An existing file is replaced whole.",
            port.arguments_schema(
                {"path": _PATH, "content": port.text_schema("The whole content of the file.")}
            ),
        ),
        _write,
    ),
    (
        Tool(
            EDIT_TOOL,
            "Replace a text in a file of the workspace. `old` must be there exactly once, or say all.",
            port.arguments_schema(
                {
                    "path": _PATH,
                    "old": port.text_schema(
                        "The text to replace, exactly as it is in the file, with its line breaks."
                    ),
                    "new": port.text_schema("What to put in its place; empty to remove it."),
                },
                {"all": {"type": "boolean", "description": "Replace every occurrence."}},
            ),
        ),
        _edit,
    ),
    (
        Tool(
            LIST_TOOL,
            "List a directory of the workspace or, with a pattern, the files and directories below that fit.",
            port.arguments_schema(
                {},
                {
                    "path": port.text_schema(
                        "Path of the directory, relative to the workspace; without it, all of it."
                    ),
                    "pattern": port.text_schema("Such as *.py (at any depth), src/*.py or src/**/test_*.py."),
                },
            ),
        ),
        _list,
    ),
)


class EditRefused(Exception):
    """The edit cannot be made; the text says why."""


class Edited(msgspec.Struct, frozen=True):
    """The content afterwards, and how it came to be. Without places, nothing changes: see `found_at`."""

    content: bytes
    lines: tuple[int, ...] = ()
    """Where the old text was, by line."""
    found_at: int | None = None
    """The line of the new text, which is there already, while the old one is nowhere else."""


def edited(content: bytes, old: bytes, new: bytes, *, all: bool = False) -> Edited:
    """The content with `new` for `old`: for the only one, or with `all` for every one."""
    if not old:
        raise EditRefused("`old` is empty; write creates a file, and edit needs the text to replace.")
    if old == new:
        raise EditRefused("`old` and `new` are the same; nothing would change.")
    places = list(_places(content, old, new))
    if not places:
        return _nothing_to_do(content, old, new)
    if not all and (len(places) > 1 or _overlaps(content, old, places[0])):
        raise EditRefused(
            f"`old` is there {max(len(places), 2)} times; include more of the text around the one you mean, "
            "or say all."
        )
    result = _replaced(content, places, len(old), new)
    if any(_places(result, old, new)):
        raise EditRefused(
            "the result would hold `old` again, so that this edit could not be told from a second one; "
            "include more of the text around it."
        )
    return Edited(result, _lines(content, places))


def _nothing_to_do(content: bytes, old: bytes, new: bytes) -> Edited:
    if not new:
        return Edited(content)
    at = content.find(new)
    if at >= 0:
        return Edited(content, found_at=_lines(content, [at])[0])
    hint = ""
    if b"\r\n" in content and b"\n" in old and b"\r\n" not in old:
        hint = " The lines of the file end with CR LF."
    raise EditRefused(f"`old` is there 0 times; read the file and copy the text exactly.{hint}")


def _places(content: bytes, old: bytes, new: bytes) -> Iterator[int]:
    """Where the old text is, but for what is part of the new text already; none overlaps another."""
    within = tuple(_found(new, old))
    at = content.find(old)
    while at >= 0:
        is_done = any(at >= offset and content.startswith(new, at - offset) for offset in within)
        if not is_done:
            yield at
        at = content.find(old, at + (1 if is_done else len(old)))


def _found(text: bytes, part: bytes) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _overlaps(content: bytes, old: bytes, at: int) -> bool:
    """Whether another occurrence begins inside the one at a place: then two are meant by one text."""
    return content.find(old, at + 1, at + 2 * len(old) - 1) >= 0


def _replaced(content: bytes, places: list[int], size: int, new: bytes) -> bytes:
    kept, end = [], 0
    for at in places:
        kept += [content[end:at], new]
        end = at + size
    return b"".join((*kept, content[end:]))


def _lines(content: bytes, places: list[int]) -> tuple[int, ...]:
    lines, line, end = [], 1, 0
    for at in places:
        line += content.count(b"\n", end, at)
        end = at
        lines.append(line)
    return tuple(lines)


class WriteTurns:
    """Locks by name. One that is not in use is forgotten."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._finding = threading.Lock()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Be the only one with this name."""
        with self._finding:
            lock = self._locks.get(name)
            if lock is None:
                lock = self._locks[name] = threading.Lock()
        with lock:
            yield

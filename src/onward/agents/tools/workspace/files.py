"""The tools that read and change files: read, write, edit and list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import msgspec
from blake3 import blake3

from onward.agents.model.request import Tool
from onward.agents.tools.describing import arguments, text
from onward.agents.tools.port import ToolAnswer, ToolRefused, ToolRules, ToolUse
from onward.agents.tools.workspace.editing import Edited, EditRefused, edited
from onward.agents.tools.workspace.looking import Walk, check_pattern, matches
from onward.agents.tools.workspace.paths import Path, PathRefused, shown
from onward.agents.tools.workspace.place import workspace_of
from onward.agents.tools.workspace.reading import check_text, content_of, read_text
from onward.agents.tools.workspace.tree import Found, Tree
from onward.agents.tools.workspace.turns import Turns
from onward.errors import CallTimedOut
from onward.model.values import EDIT_TOOL, LIST_TOOL, READ_TOOL, WRITE_TOOL
from onward.threads import in_thread

WRITERS = (WRITE_TOOL, EDIT_TOOL)
LINES = 2_000
LINES_MAX = 100_000
WRITTEN_BYTES_MAX = 4 * 1024 * 1024
LISTED_MAX = 1_000
LINES_NAMED_MAX = 20
_READING = ToolRules()
_WRITING = ToolRules(is_concurrent=False)
Work = Callable[[Tree, ToolUse], str]


class FileTool(msgspec.Struct, frozen=True):
    """A tool whose work is done in a thread, in a tree that it cannot leave. Each may be repeated."""

    described: Tool
    work: Work
    own: Sequence[str]
    turns: Turns
    rules: ToolRules

    async def run(self, use: ToolUse) -> ToolAnswer:
        limit_s = use.rules.time_limit_s
        try:
            async with asyncio.timeout(limit_s):
                return ToolAnswer(await in_thread(self._worked, use))
        except TimeoutError:
            raise CallTimedOut(use.key, limit_s) from None  # a thread cannot be ended

    def _worked(self, use: ToolUse) -> str:
        tree = Tree(workspace_of(use.step), self.own)
        try:
            with self.turns.of(tree.root) if self.described.name in WRITERS else nullcontext():
                return self.work(tree, use)
        except (PathRefused, EditRefused) as error:
            raise ToolRefused(str(error)) from None


def file_tools(own: Sequence[str]) -> list[FileTool]:
    """All of them; `own` are the paths of Onward's files."""
    turns = Turns()
    return [
        FileTool(described, work, own, turns, _WRITING if described.name in WRITERS else _READING)
        for described, work in _TOOLS
    ]


def _read(tree: Tree, use: ToolUse) -> str:
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


def _write(tree: Tree, use: ToolUse) -> str:
    parts = tree.parts(use.arguments["path"], writes=True)
    content = _encoded(use.arguments["content"], "content")
    before = _content_if_any(tree, parts)
    if before == content:
        return f"{shown(parts)} has this content already ({len(content):,} bytes); nothing was changed."
    if tree.replace(parts, content, mark=_mark(use)):
        return f"wrote the new file {shown(parts)} ({len(content):,} bytes)."
    return f"replaced the content of {shown(parts)} ({len(content):,} bytes)."


def _edit(tree: Tree, use: ToolUse) -> str:
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


def _list(tree: Tree, use: ToolUse) -> str:
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


def _line(found: Found) -> str:
    name = shown(found.parts)
    if found.is_directory:
        return f"{name}/"
    return f"{name} ({found.note})" if found.note else f"{name} ({found.size:,} bytes)"


def _content_if_any(tree: Tree, parts: Path) -> bytes | None:
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


def _mark(use: ToolUse) -> str:
    return blake3(use.key.encode()).hexdigest()[:16]


_PATH = text("Path of the file, relative to the workspace.")
_TOOLS: Sequence[tuple[Tool, Work]] = (
    (
        Tool(
            READ_TOOL,
            "Read a text file of the workspace. A long file is read in parts: the end of the answer says how "
            "to go on.",
            arguments(
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
            arguments({"path": _PATH, "content": text("The whole content of the file.")}),
        ),
        _write,
    ),
    (
        Tool(
            EDIT_TOOL,
            "Replace a text in a file of the workspace. `old` must be there exactly once, or say all.",
            arguments(
                {
                    "path": _PATH,
                    "old": text("The text to replace, exactly as it is in the file, with its line breaks."),
                    "new": text("What to put in its place; empty to remove it."),
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
            arguments(
                {},
                {
                    "path": text("Path of the directory, relative to the workspace; without it, all of it."),
                    "pattern": text("Such as *.py (at any depth), src/*.py or src/**/test_*.py."),
                },
            ),
        ),
        _list,
    ),
)

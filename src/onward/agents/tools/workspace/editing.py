"""Replace a text in a file, as a pure function, and so that the same edit made twice changes nothing more.

A process may die between writing the file and recording it; the use is then repeated. An occurrence of the
old text that is part of the new one counts as replaced, and an edit whose result would hold the old text
again is refused: nobody could tell the second time from the first.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


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

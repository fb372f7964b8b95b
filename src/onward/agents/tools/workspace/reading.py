"""Read a part of a text file, however large the file is."""

from __future__ import annotations

import codecs
import os

from onward.agents.tools.workspace.paths import PathRefused

CHUNK_BYTES = 64 * 1024
LOOKED_AT_BYTES = 8 * 1024
SKIPPED_BYTES_MAX = 256 * 1024 * 1024
"""How much is read only to count lines, before the first one that is wanted."""
NOTE_CHARACTERS = 200


def read_text(
    file: int, *, name: str, offset: int, limit: int, characters: int, is_numbered: bool = False
) -> str:
    """Up to `limit` lines from line `offset` on, in `characters`, with a note of what was left out."""
    check_text(os.pread(file, LOOKED_AT_BYTES, 0), name, os.fstat(file).st_size, is_whole=False)
    skipped, rest = _skip(file, offset - 1, name)
    if rest is None:
        return f"[{name} is empty]" if not skipped else f"[{name} has only {skipped} lines]"
    room = max(characters - NOTE_CHARACTERS, NOTE_CHARACTERS)
    content, is_end = _gathered(file, rest, limit, room * 4)
    check_text(content, name, os.fstat(file).st_size, is_whole=is_end)
    return _shown(content, is_end=is_end, offset=offset, limit=limit, room=room, is_numbered=is_numbered)


def content_of(file: int, bytes_max: int) -> bytes | None:
    """All of an open file; None if it is larger."""
    found = bytearray()
    while len(found) <= bytes_max and (chunk := os.read(file, CHUNK_BYTES)):
        found += chunk
    return bytes(found) if len(found) <= bytes_max else None


def check_text(content: bytes, name: str, size: int, *, is_whole: bool = True) -> str:
    """The text; PathRefused if these are the bytes of something else."""
    try:
        if b"\0" not in content:
            return codecs.getincrementaldecoder("utf-8")().decode(content, final=is_whole)
    except UnicodeDecodeError:
        pass
    raise PathRefused(f"{name} is not text in UTF-8 ({size:,} bytes), so it is not shown or changed.")


def _skip(file: int, lines: int, name: str) -> tuple[int, bytes | None]:
    """How many lines were skipped, and the bytes after them that were read; None: there are no more."""
    skipped, read, last = 0, 0, b""
    while chunk := os.read(file, CHUNK_BYTES):
        here = chunk.count(b"\n")
        if skipped + here < lines:
            skipped, read = skipped + here, read + len(chunk)
            if read > SKIPPED_BYTES_MAX:
                raise PathRefused(
                    f"line {lines + 1} of {name} is more than {SKIPPED_BYTES_MAX:,} bytes into the file; "
                    "use search, or a command."
                )
            last = chunk
            continue
        at = 0
        for _ in range(lines - skipped):
            at = chunk.index(b"\n", at) + 1
        rest = chunk[at:] or os.read(file, CHUNK_BYTES)
        return lines, rest or None
    return skipped + (last != b"" and not last.endswith(b"\n")), None


def _gathered(file: int, content: bytes, limit: int, bytes_max: int) -> tuple[bytes, bool]:
    """At least `limit` lines or `bytes_max` bytes, unless the file ends before; and whether it does."""
    found, lines = bytearray(content), content.count(b"\n")
    while lines < limit and len(found) < bytes_max:
        chunk = os.read(file, CHUNK_BYTES)
        if not chunk:
            return bytes(found), True
        found += chunk
        lines += chunk.count(b"\n")
    return bytes(found), not os.read(file, 1)


def _shown(content: bytes, *, is_end: bool, offset: int, limit: int, room: int, is_numbered: bool) -> str:
    lines = codecs.getincrementaldecoder("utf-8")().decode(content, final=is_end).split("\n")
    ends_open = lines[-1] != ""
    if not ends_open:
        lines.pop()
    taken: list[str] = []
    for number, line in enumerate(lines[:limit], offset):
        text = f"{number}\t{line}" if is_numbered else line
        room -= len(text) + 1
        if room < 0:
            break
        taken.append(text)
    # What was read of the last line may be only its beginning.
    if taken and len(taken) == len(lines) and ends_open and not is_end:
        taken.pop()
    if not taken:
        beginning = lines[0][: max(room + len(lines[0]), 0)]
        return f"{beginning}\n[line {offset} goes on; it is too long to be shown whole]"
    text, last = "\n".join(taken), offset + len(taken) - 1
    if is_end and len(taken) == len(lines):
        return text if offset == 1 else f"{text}\n[lines {offset} to {last}; the file ends here]"
    return f"{text}\n[lines {offset} to {last}; the file goes on: read it with offset={last + 1}]"

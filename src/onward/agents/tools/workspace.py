"""A workspace, opened name by name: nothing in it is reached through a link, and nothing of Onward's.

    arguments ──► parts_of (a path inside, or refused) ──► WorkspaceTree (name by name) ──► answer

What the model writes is untrusted, and so is the workspace: a command of the same agent may exchange a
directory for a link while another tool is on its way through it. So no path is ever handed to the system as
a whole: every name is opened in the directory before it, and a link is refused wherever it stands.

In this order: paths as a model writes them, inside the workspace or refused with a sentence that says why;
the tree; a walk through it, sorted, bounded, and not into what only programs read; and a part of a text
file, however large the file is. `search_program` imports this file without site-packages: it uses the
standard library only.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice

from onward.entry import (
    Directory,
    InTheWay,
    NotPlain,
    closing,
    created,
    directory_at,
    fill,
    readable,
)

Path = tuple[str, ...]
PATH_BYTES_MAX = 4_096
NAME_BYTES_MAX = 255
DEPTH_MAX = 64
OWN = ".onward"
NOT_WRITTEN = (".git", "onward.toml")
"""Whoever writes these decides what git or Onward execute later."""


class PathRefused(Exception):
    """A path, or what is there, cannot be used; the text says why."""


def parts_of(path: str, root: str) -> Path:
    """The names that lead from the workspace `root` to a path; none for the workspace itself.

    `a/../b` means `b`: no link is followed, so a name and its `..` cancel each other out.
    """
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise PathRefused("the path is not valid text; correct it.") from None
    if size > PATH_BYTES_MAX:
        raise PathRefused(f"the path is longer than {PATH_BYTES_MAX:,} bytes; write a shorter one.")
    if any(unicodedata.category(sign) == "Cc" for sign in path):
        raise PathRefused(f"the path {path[:80]!a} has control characters; write it without them.")
    if path.partition("/")[0] == "~":
        raise PathRefused(f"{path} is outside the workspace; write a path relative to the workspace.")
    found: list[str] = []
    for name in _relative(path, root).split("/"):
        if name == "..":
            if not found:
                raise PathRefused(f"{path} leads out of the workspace; write a path inside it.")
            found.pop()
        elif name not in ("", "."):
            found.append(_checked(name, path))
    if len(found) > DEPTH_MAX:
        raise PathRefused(f"{path} is more than {DEPTH_MAX} directories deep.")
    return tuple(found)


def _relative(path: str, root: str) -> str:
    """The path from the workspace, also if it is written from the root of the file system."""
    if not path.startswith("/"):
        return path
    plain, top = os.path.normpath(path).lstrip("/"), os.path.normpath(root).strip("/")
    if top and plain != top and not plain.startswith(f"{top}/"):
        raise PathRefused(f"{path} is outside the workspace; write a path relative to the workspace.")
    return plain[len(top) :]


def _checked(name: str, path: str) -> str:
    if len(name.encode()) > NAME_BYTES_MAX:
        raise PathRefused(f"{path[:80]}… has a name of more than {NAME_BYTES_MAX} bytes.")
    return name


def check_parts(parts: Path, *, writes: bool) -> None:
    """Refuse what belongs to Onward and, for writing, what decides about later commands."""
    for name in parts:
        plain = _plain(name)
        if plain == OWN:
            raise PathRefused(f"{shown(parts)} belongs to Onward; tools cannot read or write it.")
        if writes and plain in NOT_WRITTEN:
            raise PathRefused(f"{shown(parts)} cannot be written by tools: {name} decides what is executed.")


def _plain(name: str) -> str:
    """A name as a file system may see it that ignores case and invisible characters."""
    letters = unicodedata.normalize("NFKC", name)
    return "".join(sign for sign in letters if unicodedata.category(sign) != "Cf").casefold().rstrip(". ")


def shown(parts: Path) -> str:
    """A path for people and models, in one line: what cannot be printed is escaped."""
    return "/".join(name if name.isprintable() else ascii(name)[1:-1] for name in parts) or "."


Identity = tuple[int, int]
DIRECTORY_ENTRIES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A name in a directory: a plain file with its size, a directory, or something else with a note."""

    parts: Path
    is_directory: bool = False
    size: int = 0
    note: str = ""


class WorkspaceTree:
    """The workspace at `root`; `own` are the paths of Onward's files, wherever they are."""

    def __init__(
        self, root: str, own: Sequence[str] = (), *, entries_max: int = DIRECTORY_ENTRIES_MAX
    ) -> None:
        self._entries_max = entries_max
        self.root = os.path.realpath(root)
        self._given = os.path.abspath(root)
        self._own_paths = frozenset(os.path.realpath(path) for path in own)
        self._own = frozenset(filter(None, map(_identity_at, self._own_paths)))

    def parts(self, path: str, *, writes: bool = False) -> Path:
        """The names of a path as it was written; PathRefused if it is not for tools."""
        is_below = path == self._given or path.startswith(f"{self._given}/")
        parts = parts_of(path, self._given if is_below else self.root)
        check_parts(parts, writes=writes)
        for depth in range(len(parts)):
            if os.path.join(self.root, *parts[: depth + 1]) in self._own_paths:
                raise _ours(parts)
        return parts

    def directory(self, parts: Path, *, makes: bool = False) -> Directory:
        """The directory at these names, none of them a link; with `makes`, missing ones are made."""
        with _said(parts):
            here = directory_at(self.root)
            for depth, name in enumerate(parts):
                if makes:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=here.descriptor)
                here = here.within(name)
                if _identity(os.fstat(here.descriptor)) in self._own:
                    raise _ours(parts[: depth + 1])
            return here

    @contextlib.contextmanager
    def opened(self, parts: Path) -> Iterator[int]:
        """A plain file, open for reading."""
        if not parts:
            raise PathRefused("the path names the workspace itself; name a file in it.")
        directory = self.directory(parts[:-1])
        with _said(parts):
            self.state(directory, parts)
            file = readable(directory.descriptor, parts[-1])
        with closing(file):
            if _identity(os.fstat(file)) in self._own:
                raise _ours(parts)
            yield file

    def state(self, directory: Directory, parts: Path) -> os.stat_result:
        """The state of a plain file; PathRefused for anything else. A device is not even opened."""
        state = os.stat(parts[-1], dir_fd=directory.descriptor, follow_symlinks=False)
        if stat.S_ISDIR(state.st_mode):
            raise PathRefused(f"{shown(parts)} is a directory; use list.")
        if not stat.S_ISREG(state.st_mode):
            raise _not_plain(parts)
        if _identity(state) in self._own:
            raise _ours(parts)
        return state

    def replace(self, parts: Path, content: bytes, *, mark: str) -> bool:
        """Put a file there, whole or not at all, and on the disk; says whether it is new.

        A file that was there keeps its mode. `mark` names the half-written one, so that a repeated use
        removes what the first one left.
        """
        if not parts:
            raise PathRefused("the path names the workspace itself; name a file in it.")
        directory = self.directory(parts[:-1], makes=True)
        with _said(parts):
            try:
                mode: int | None = stat.S_IMODE(self.state(directory, parts).st_mode) & 0o777
            except FileNotFoundError:
                mode = None
            _put(directory.descriptor, parts[-1], content, part=f".onward-{mark}.part", mode=mode)
        return mode is None

    def entries(self, directory: Directory, parts: Path) -> list[TreeEntry]:
        """What is in a directory, by name, without what is Onward's."""
        with _said(parts), os.scandir(directory.descriptor) as entries:
            found = [
                self._found(entry, (*parts, entry.name)) for entry in islice(entries, self._entries_max + 1)
            ]
        if len(found) > self._entries_max:
            raise PathRefused(f"{shown(parts)} has more than {self._entries_max:,} entries; use a command.")
        return sorted(filter(None, found), key=lambda one: one.parts)

    def _found(self, entry: os.DirEntry[str], parts: Path) -> TreeEntry | None:
        try:
            check_parts(parts[-1:], writes=False)
            state = entry.stat(follow_symlinks=False)
        except (PathRefused, FileNotFoundError):
            return None
        if _identity(state) in self._own:
            return None
        if stat.S_ISREG(state.st_mode):
            return TreeEntry(parts, size=state.st_size)
        if stat.S_ISDIR(state.st_mode):
            return TreeEntry(parts, is_directory=True)
        return TreeEntry(
            parts, note="a link, not followed" if stat.S_ISLNK(state.st_mode) else "not a plain file"
        )


def _put(directory: int, name: str, content: bytes, *, part: str, mode: int | None) -> None:
    """Write under another name, and give the file its own when it is whole."""
    file = created(directory, part, mode=0o666)
    try:
        with closing(file):
            fill(file, content)
            if mode is not None:
                os.fchmod(file, mode)
            os.fsync(file)
        os.replace(part, name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=directory)
        raise


@contextlib.contextmanager
def _said(parts: Path) -> Iterator[None]:
    """Turn what the system says into a sentence about the path."""
    try:
        yield
    except NotPlain:
        raise _not_plain(parts) from None
    except InTheWay:
        raise PathRefused(
            f"{shown(parts)} has a parent that is not a directory; links are not followed."
        ) from None
    except FileNotFoundError:
        if not parts:
            raise PathRefused("the workspace no longer exists.") from None
        raise PathRefused(f"there is no {shown(parts)} in the workspace; list shows what there is.") from None
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise _not_plain(parts) from None
        raise PathRefused(f"{shown(parts)} cannot be used: {error.strerror or error}.") from None


def _not_plain(parts: Path) -> PathRefused:
    return PathRefused(f"{shown(parts)} is not a plain file; links are not followed.")


def _ours(parts: Path) -> PathRefused:
    return PathRefused(f"{shown(parts)} belongs to Onward; tools cannot read or write it.")


def _identity(state: os.stat_result) -> Identity:
    return state.st_dev, state.st_ino


def _identity_at(path: str) -> Identity | None:
    try:
        return _identity(os.lstat(path))
    except OSError:
        return None


NOT_ENTERED = frozenset(
    (
        *(".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".cache", ".gradle", ".terraform"),
    )
)
"""Directories that are listed, but not looked into, unless they are named."""
WALKED_ENTRIES_MAX = 50_000
PATTERN_CHARACTERS_MAX = 500


class Walk:
    """Everything below a directory, depth first. `notes` say what was not looked at."""

    def __init__(self, tree: WorkspaceTree, entries_max: int = WALKED_ENTRIES_MAX) -> None:
        self._tree, self._left, self._entries_max = tree, entries_max, entries_max
        self._skipped: set[str] = set()
        self._is_cut = False

    def below(self, parts: Path) -> Iterator[TreeEntry]:
        """All that is found; a directory comes before what is in it."""
        for found in self._tree.entries(self._tree.directory(parts), parts):
            if self._left <= 0:
                self._is_cut = True
                return
            self._left -= 1
            yield found
            if found.is_directory:
                yield from self._inside(found)

    def _inside(self, found: TreeEntry) -> Iterator[TreeEntry]:
        if found.parts[-1] in NOT_ENTERED or len(found.parts) >= DEPTH_MAX:
            self._skipped.add(found.parts[-1])
            return
        try:
            yield from self.below(found.parts)
        except PathRefused:
            self._skipped.add(shown(found.parts))  # it was removed or exchanged, or may not be read

    @property
    def notes(self) -> list[str]:
        told = []
        if self._skipped:
            told.append(f"not looked into: {', '.join(sorted(self._skipped)[:20])}")
        if self._is_cut:
            told.append(f"stopped after {self._entries_max:,} entries; name a directory")
        return told


def matches(parts: Path, pattern: str) -> bool:
    """Whether a path fits a pattern such as `*.py`, `src/*.py` or `src/**/test_*.py`.

    A pattern without `/` is one for names, at any depth.
    """
    if "/" not in pattern:
        return fnmatchcase(parts[-1], pattern)
    return _fits(parts, tuple(name for name in pattern.split("/") if name not in ("", ".")))


def check_pattern(pattern: str) -> str:
    """The pattern itself; PathRefused if it is too long to be one."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PathRefused(f"the pattern is longer than {PATTERN_CHARACTERS_MAX} characters.")
    return pattern


def _fits(parts: Path, names: Path) -> bool:
    """Row by row, so that many `**` cost no more than a table of names × parts."""
    reached = [True] + [False] * len(parts)
    for name in names:
        if name == "**":
            first = reached.index(True) if True in reached else len(reached)
            reached = [at >= first for at in range(len(reached))]
            continue
        reached = [False] + [reached[at] and fnmatchcase(part, name) for at, part in enumerate(parts)]
    return reached[-1]


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
        return f"{beginning}\n[line {offset} continues; it is too long to be shown in full]"
    text, last = "\n".join(taken), offset + len(taken) - 1
    if is_end and len(taken) == len(lines):
        return text if offset == 1 else f"{text}\n[lines {offset} to {last}; the file ends here]"
    return f"{text}\n[lines {offset} to {last}; the file continues: read it with offset={last + 1}]"

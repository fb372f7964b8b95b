"""Paths as a model writes them: inside the workspace, or refused with a sentence that says why."""

from __future__ import annotations

import os
import unicodedata

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
        raise PathRefused("the path is not valid text; write it anew.") from None
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
            raise PathRefused(f"{shown(parts)} belongs to Onward, which no tool reads or writes.")
        if writes and plain in NOT_WRITTEN:
            raise PathRefused(f"{shown(parts)} is not written by tools: {name} decides what is executed.")


def _plain(name: str) -> str:
    """A name as a file system may see it that ignores case and invisible characters."""
    letters = unicodedata.normalize("NFKC", name)
    return "".join(sign for sign in letters if unicodedata.category(sign) != "Cf").casefold().rstrip(". ")


def shown(parts: Path) -> str:
    """A path for people and models, in one line: what cannot be printed is escaped."""
    return "/".join(name if name.isprintable() else ascii(name)[1:-1] for name in parts) or "."

"""Print a picture to a terminal or a pipe, or write it to a file completely or not at all."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from contextlib import suppress

from onward.cli.print.output import Output
from onward.draw.scene import Scene
from onward.draw.text import FINE, Row, to_rows
from onward.errors import InvalidInput, Refused

_IS_SVG = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>]*>|\s)*<(?:\w+:)?svg[\s>]", re.DOTALL
)
_STYLES = {
    "running": "blue",
    "waiting": "bold yellow",
    "retrying": "yellow",
    "failed": "bold red",
    "interrupted": "magenta",
    "partial": "yellow",
    "skipped": "dim",
    "succeeded": "green",
    "not reached": "dim",
    "heading": "bold",
    "name": "bold",
    "dim": "dim",
}


def can_print(text: str) -> bool:
    """Whether standard output can encode a text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def print_rows(scene: Scene, out: Output) -> None:
    """Print the text drawing: in colour and as wide as the terminal, plain and uncut elsewhere."""
    is_ascii = not can_print("".join(FINE) + "✓✗●◐↻")
    if not out.is_live:
        for row in to_rows(scene, is_ascii=is_ascii):
            out.say("".join(span.text for span in row))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    try:
        for row in to_rows(scene, width=console.width, is_ascii=is_ascii):
            console.print(_coloured(row))
    except OSError as error:
        out.lose(sys.stdout, error)


def _coloured(row: Row) -> object:
    from rich.text import Text

    return Text.assemble(*((span.text, _STYLES.get(span.role, "")) for span in row))


def write_svg(document: str, path: str, *, force: bool) -> None:
    """Write the document completely or not at all; a file that is not an SVG is replaced only if forced."""
    ending = os.path.splitext(path)[1]
    if ending.lower() not in ("", ".svg"):
        raise InvalidInput(
            f"--out {path} would not be a {ending}: only SVG can be written; name a file that ends in .svg."
        )
    goal = os.path.realpath(path)
    try:
        _check(goal, path, force)
        _replace(goal, document.encode())
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}.") from None


def _check(goal: str, path: str, force: bool) -> None:
    try:
        kind = os.stat(goal).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(kind):
        raise InvalidInput(f"--out {path} is not a file; name a file, or leave --out off to print.")
    if force:
        return
    with open(goal, "rb") as file:
        beginning = file.read(4096)
    if beginning and not _IS_SVG.match(beginning):
        raise Refused(
            "not_svg", f"{path} exists and is not an SVG; name another file, or replace it with --force."
        )


def _replace(goal: str, content: bytes) -> None:
    folder, name = os.path.split(goal)
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".part")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, _mode(goal))
            os.fsync(descriptor)
        os.replace(temporary, goal)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _mode(goal: str) -> int:
    """The permissions that the file has, or that a new one would get."""
    try:
        return stat.S_IMODE(os.stat(goal).st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask

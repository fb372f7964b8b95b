"""`onward graph`: a pipeline, or a run in its pipeline, as a picture.

The picture is printed to a terminal or a pipe, or written to a file completely or not at all.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onward.cli.operations import common_app, look_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.output import FINE, Output
from onward.draw.boxes import geometry_of
from onward.draw.scene import Scene, from_view, make_scene, to_view
from onward.draw.svg import to_svg
from onward.draw.text import UNICODE, Row, to_rows
from onward.errors import InvalidInput, NoDatabase, Refused, RunNotFound
from onward.model.ids import called
from onward.operations.requests import DrawRun

if TYPE_CHECKING:
    from onward.replies.steps import Drawing

Format = Literal["svg", "text"]


async def graph(
    what: Annotated[
        str,
        Parameter(
            name="RUN|FILE", help="A run, or a pipeline: a DOT file. An existing file takes precedence."
        ),
    ],
    /,
    *,
    file: Annotated[
        str | None, Parameter(name="--out", help="Write SVG into this file instead of printing.")
    ] = None,
    format: Annotated[
        Format | None, Parameter(help="What to print. Default: text on a terminal, SVG elsewhere.")
    ] = None,
    original: Annotated[
        bool, Parameter(help="Draw the pipeline that the run started with, if it has changed since.")
    ] = False,
    force: Annotated[bool, Parameter(help="Let --out replace a file that is not an SVG.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Draw a pipeline's graph; for a run, with what happened in it: states, visits, retries, the trace."""
    if file is not None and format == "text":
        raise InvalidInput("--out writes SVG; for text, leave --out off and redirect the output to a file.")
    if _is_path(what):
        if original:
            raise InvalidInput(f"--original applies to runs, and {what} is a file; leave it out.")
        drawing = _of_file(what, common)
    else:
        drawing = await _of_run(what, original, common)
    scene = from_view(drawing, title=_title(drawing))
    if file is not None:
        write_svg(to_svg(scene), file, force=force)
        out.say(f"wrote {file}")
    if out.is_json:
        out.value(drawing)
    elif file is None:
        _print(scene, format, out)
    return FINE


def _is_path(what: str) -> bool:
    """Whether a file is meant: one that exists, or something that can be nothing else."""
    return os.path.isfile(what) or os.sep in what or what.endswith((".dot", ".gv"))


def _print(scene: Scene, format: Format | None, out: Output) -> None:
    if format == "text" or (format is None and out.is_live):
        print_rows(scene, out)
        return
    document = to_svg(scene)
    if not can_print(document):
        document = document.encode("ascii", "xmlcharrefreplace").decode()
    out.say(document, end="")


def _of_file(path: str, common: Common) -> Drawing:
    pipeline = common_app(common).read(path)
    scene = make_scene(pipeline.graph, title=pipeline.name)
    return {
        "pipeline": pipeline.name,
        "pipeline_hash": pipeline.hash,
        "path": pipeline.path,
        "run": None,
        **to_view(scene),
        "geometry": geometry_of(scene),
    }


async def _of_run(wanted: str, original: bool, common: Common) -> Drawing:
    try:
        async with look_of(common) as look:
            return await look.draw_run(DrawRun(run=wanted, original=original))
    except (RunNotFound, NoDatabase) as error:
        message = f"{wanted!r} is neither a file nor a run: {error}"
        raise Refused("run_not_found", message, details={"wanted": wanted}) from None


def _title(drawing: Drawing) -> str:
    run = drawing["run"]
    return drawing["pipeline"] + (f": run {called(run['id'])}, {run['status']}" if run else "")


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
    is_ascii = not can_print("".join(UNICODE) + "✓✗●◐↻")
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
        _check_replaceable(goal, path, force)
        _replace(goal, document.encode())
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}.") from None


def _check_replaceable(goal: str, path: str, force: bool) -> None:
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

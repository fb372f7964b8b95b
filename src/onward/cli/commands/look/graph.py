"""`onward graph`: a pipeline, or a run in its pipeline, as a picture."""

from __future__ import annotations

import os
from typing import Annotated, Literal, cast

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.opening.app import common_app
from onward.cli.opening.looking import look_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.output import Output
from onward.cli.print.picture import can_print, print_rows, write_svg
from onward.draw.scene import Scene, from_view, make_scene, to_view
from onward.draw.svg import to_svg
from onward.errors import InvalidInput, NoDatabase, Refused, RunNotFound
from onward.model.ids import called
from onward.operations.replies.steps import Drawing
from onward.operations.requests import DrawRun

Format = Literal["svg", "text"]


async def graph(
    what: Annotated[
        str, Parameter(name="RUN|FILE", help="A run, or a pipeline: a DOT file. A file that exists wins.")
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
        bool, Parameter(help="Draw the pipeline that the run began with, if it changed since.")
    ] = False,
    force: Annotated[bool, Parameter(help="Let --out replace a file that is not an SVG.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Draw a pipeline's graph; for a run, with what happened in it: states, visits, retries, the trace."""
    if file is not None and format == "text":
        raise InvalidInput(
            "--out writes SVG; to keep the text, leave --out off and send the output to a file."
        )
    if _is_path(what):
        if original:
            raise InvalidInput(f"--original speaks of a run, and {what} is a file; leave it off.")
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
    about = {"pipeline": pipeline.name, "pipeline_hash": pipeline.hash, "path": pipeline.path, "run": None}
    return cast("Drawing", {**about, **to_view(make_scene(pipeline.graph, title=pipeline.name))})


async def _of_run(wanted: str, original: bool, common: Common) -> Drawing:
    try:
        async with look_of(common) as look:
            return await look.draw_run(DrawRun(run=wanted, original=original))
    except (RunNotFound, NoDatabase) as error:
        message = f"{wanted!r} is neither a file here nor a run: {error}"
        raise Refused("run_not_found", message, details={"wanted": wanted}) from None


def _title(drawing: Drawing) -> str:
    run = drawing["run"]
    return drawing["pipeline"] + (f": run {called(run['id'])}, {run['status']}" if run else "")

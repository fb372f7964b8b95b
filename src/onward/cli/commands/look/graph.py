"""`onward graph`: a pipeline, or a run in its pipeline, as a picture."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from cyclopts import Parameter
from msgspec.structs import replace

from onward.cli.exits import FINE
from onward.cli.opening import app_of, store_to_look_at
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.output import Output
from onward.cli.print.picture import can_print, print_rows, write_svg
from onward.clock import SystemClock
from onward.config import load_settings
from onward.draw.scene import Scene, make_scene
from onward.draw.states import states_of
from onward.draw.svg.page import to_svg
from onward.draw.view import to_view
from onward.draw.way import Way
from onward.engine.control.sources import Sources
from onward.engine.log.journal import Journal
from onward.errors import InvalidInput, NoDatabase, Refused, RunNotFound
from onward.machine.fold.row import project
from onward.model.event import RunCreated
from onward.pipeline.build import BUILT_IN_TYPES, Pipeline
from onward.read.lookup import find_run, log_pages
from onward.read.view import known_row, view_row
from onward.store.codec import unseal
from onward.store.port.store import Store

Format = Literal["svg", "text"]
Subject = dict[str, object]


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
    force: Annotated[bool, Parameter(help="Let --out replace a file that is no SVG.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Draw a pipeline's graph; for a run, with what happened in it: states, visits, retries, the way."""
    if file is not None and format == "text":
        raise InvalidInput(
            "--out writes SVG; to keep the text, leave --out off and send the output to a file."
        )
    if _is_path(what):
        if original:
            raise InvalidInput(f"--original speaks of a run, and {what} is a file; leave it off.")
        scene, subject = _of_file(what, common)
    else:
        scene, subject = await _of_run(what, original, common)
    if file is not None:
        write_svg(to_svg(scene), file, force=force)
        out.say(f"wrote {file}")
    if out.is_json:
        out.value({**subject, **to_view(scene)})
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


def _of_file(path: str, common: Common) -> tuple[Scene, Subject]:
    pipeline = app_of(load_settings(db=common.db, app=common.app)).read(path)
    return make_scene(pipeline.graph, title=pipeline.name), _subject(pipeline, None)


async def _of_run(wanted: str, original: bool, common: Common) -> tuple[Scene, Subject]:
    try:
        async with store_to_look_at(common) as store:
            return await _drawn(store, (await find_run(store.runs, wanted)).row.id, original, common)
    except (RunNotFound, NoDatabase) as error:
        message = f"{wanted!r} is neither a file here nor a run: {error}"
        raise Refused("run_not_found", message, details={"wanted": wanted}) from None


async def _drawn(store: Store, run_id: str, original: bool, common: Common) -> tuple[Scene, Subject]:
    folded = await Journal(store.log, SystemClock()).load(run_id)
    way, run = Way(), folded.run
    first: RunCreated | None = None
    async for page in log_pages(store.log, run_id):
        events = [unseal(record) for record in page]
        first = first or next((event for event in events if isinstance(event, RunCreated)), None)
        way.take(events)
    if original and first is not None:
        run = replace(run, pipeline_hash=first.pipeline_hash)
    app = app_of(load_settings(db=common.db, app=common.app))
    sources = Sources(store.blobs, app.transforms, {*app.handlers, *BUILT_IN_TYPES}, app.rules)
    pipeline = await sources.stored(run)
    is_at_work = folded.holder is not None and folded.holder.is_alive
    states = states_of(pipeline.graph, folded.run, way, is_at_work=is_at_work)
    view = view_row(known_row(project(folded.run), folded.holder, folded.run), folded.holder)
    title = f"{pipeline.name}: run {view['display_id']}, {view['status']}"
    about = {name: view[name] for name in ("id", "display_id", "status", "reason", "next")}
    return make_scene(pipeline.graph, states, title=title), _subject(pipeline, about)


def _subject(pipeline: Pipeline, run: Subject | None) -> Subject:
    return {"pipeline": pipeline.name, "pipeline_hash": pipeline.hash, "path": pipeline.path, "run": run}

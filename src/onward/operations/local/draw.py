"""A run in the graph of its pipeline: the state of every node, and the edges the run took."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from onward.draw.scene import make_scene
from onward.draw.states import states_of
from onward.draw.trace import Trace
from onward.draw.view import to_view
from onward.engine.control.sources import Sources
from onward.engine.log.reader import Folded
from onward.machine.fold.row import project
from onward.model.events.runs import RunCreated
from onward.operations.replies.drawing import Drawing
from onward.read.lookup import log_pages
from onward.read.view import view_row
from onward.store.codec import unseal
from onward.store.port.log import RunLog

ABOUT = ("id", "display_id", "status", "reason", "next")


async def draw(log: RunLog, sources: Sources, folded: Folded, *, original: bool) -> Drawing:
    """The graph that the run has now, or with `original` the one that it began with."""
    trace, run, holder = Trace(), folded.run, folded.holder
    first: RunCreated | None = None
    async for page in log_pages(log, run.id):
        events = [unseal(record) for record in page]
        first = first or next((event for event in events if isinstance(event, RunCreated)), None)
        trace.add(events)
    defined = replace(run, pipeline_hash=first.pipeline_hash) if original and first is not None else run
    pipeline = await sources.stored(defined)
    is_at_work = holder is not None and holder.is_alive
    states = states_of(pipeline.graph, run, trace, is_at_work=is_at_work)
    shown = view_row(project(run), holder)
    drawing = {
        "pipeline": pipeline.name,
        "pipeline_hash": pipeline.hash,
        "path": pipeline.path,
        "run": {name: shown[name] for name in ABOUT},
        **to_view(make_scene(pipeline.graph, states, title=pipeline.name)),
    }
    return cast("Drawing", drawing)

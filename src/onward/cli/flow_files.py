"""Flows in files, as words of the command line: `site.py:build` to run, `--app site.py` to serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onward.config import load_settings
from onward.errors import InvalidInput
from onward.operations.here.submission import submission
from onward.operations.requests import SubmitRun
from onward.pipeline.flow_source import flow_place

if TYPE_CHECKING:
    from onward.app import Onward
    from onward.cli.options import Common


def app_in_file(file: str) -> Onward:
    """The app that a file of Python has, or a new one, with all flows of the file."""
    from onward.app import Onward
    from onward.flows.load import flows_in, load_file, steps_in

    module = load_file(file)
    apps = list({id(one): one for one in vars(module).values() if isinstance(one, Onward)}.values())
    if len(apps) > 1:
        raise InvalidInput(f"--app {file}: the file has several apps; name one as MODULE:NAME.")
    app = apps[0] if apps else Onward(load_settings().db)
    for flow in flows_in(module):
        app.add_flow(flow)
    for step in steps_in(module):
        app.add_step(step)
    return app


def asked_run(word: str, inputs: Mapping[str, Any], **how: Any) -> SubmitRun:
    """A run of what a word names: the flow `site.py:build`, a file with a graph, or a registered name."""
    place = flow_place(word)
    if place is None:
        return submission(word, inputs=dict(inputs), **how)
    from onward.flows.load import flow_at

    flow = flow_at(place)
    bound = flow.bind_values(inputs, is_text=True)
    return SubmitRun(source=flow.source, file=word, path=flow.path, inputs=dict(bound.inputs), **how)


def with_app_of(word: str, common: Common) -> Common:
    """The flags of a command about `site.py:build`: the app is that of the file, unless one is named."""
    place = flow_place(word)
    if place is None or load_settings(app=common.app).app is not None:
        return common
    return replace(common, app=place.file)

"""Pipelines and runs to draw."""

from __future__ import annotations

from collections.abc import Sequence

from onward.draw.scene import Scene, States, Trace, make_scene, states_of
from onward.machine.lifecycle import apply
from onward.model.events import Event, RunClaimed, RunCreated
from onward.model.run import Run
from onward.pipeline.build import build
from onward.pipeline.graph import Graph

RELEASE = """
digraph release {
    start   [shape=Mdiamond]
    exit    [shape=Msquare]
    plan    [label="Plan the change", prompt="Plan it"]
    write   [label="Write it", shape=parallelogram, tool_command="true", max_retries=2]
    test    [label="Run the tests", shape=parallelogram, tool_command="true"]
    fix     [label="Fix what was found", prompt="Fix it"]
    good    [label="All good?", shape=diamond]
    docs    [label="Write the docs", prompt="Document it"]
    notes   [label="Release notes", prompt="Say what changed"]
    approve [label="Ship it?", shape=hexagon]
    deploy  [label="Deploy", shape=parallelogram, tool_command="true"]
    watch   [label="Watch the rollout", shape=house, stack.child_dotfile="rollout.dot"]
    start -> plan -> write -> test
    test -> good [condition="outcome=success"]
    test -> fix  [condition="outcome=fail"]
    fix -> write
    good -> docs  [condition="context.docs=wanted"]
    good -> notes
    docs -> notes -> approve
    approve -> deploy [label="[Y] Yes"]
    approve -> plan   [label="[N] Again"]
    deploy -> watch -> exit
}
"""
FAN = """
digraph fan {
    start [shape=Mdiamond]
    exit  [shape=Msquare]
    fan   [shape=component]
    lint  [prompt=x]
    test  [prompt=x]
    deep  [prompt=x]
    join  [shape=tripleoctagon]
    start -> fan -> lint -> join -> exit
    fan -> test -> deep -> join
}
"""


def graph_of(source: str) -> Graph:
    return build(source, file="<test>").graph


def scene_of(source: str, states: States | None = None) -> Scene:
    graph = graph_of(source)
    return make_scene(graph, states, title=graph.name)


def lived(*events: Event) -> tuple[Run, Trace]:
    """A run that was created and claimed, after these events, and its trace."""
    created = RunCreated(pipeline="p", pipeline_hash="h", start_node="start")
    log: Sequence[Event] = (created, RunClaimed(token=1, worker="me"), *events)
    run: Run | None = None
    for at_us, event in enumerate(log):
        run = apply(run, event, run_id="r", at_us=at_us, token=0 if event is created else 1)
    assert run is not None
    trace = Trace()
    trace.add(log)
    return run, trace


def states_after(source: str, *events: Event, is_at_work: bool = True) -> States:
    return states_of(graph_of(source), *lived(*events), is_at_work=is_at_work)

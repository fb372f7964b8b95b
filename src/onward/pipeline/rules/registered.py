"""Rules about registered pipelines: only the source is stored, so it must mean the same without its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from onward.model.ids import can_be_registered
from onward.pipeline.diagnostic import Severity
from onward.pipeline.graph import Graph, Node
from onward.pipeline.rules.control import CHILD, MANAGER
from onward.pipeline.rules.rule import Problem, Rule, Subject, about

CHILD_WORKDIR, WORKSPACE = "stack.child_workdir", "workspace"


def children_registered(subject: Subject) -> Iterator[Problem]:
    """The pipelines that a registered pipeline manages are registered, too."""
    graph = subject.graph
    for node in graph.nodes.values():
        owner = node if node.text(CHILD) else graph
        written = owner.text(CHILD)
        if node.kind == MANAGER and written and not can_be_registered(written):
            yield about(
                owner,
                f"manager loop {node.id!r} manages the file {written}, which is not stored with a registered "
                "pipeline",
                key=CHILD,
                fix=f'register that file as well, and write its name: {CHILD}="{_stem(written)}"',
            )


def places_absolute(subject: Subject) -> Iterator[Problem]:
    """A registered pipeline names no directory relative to a file that it does not have."""
    graph = subject.graph
    owners: list[tuple[Graph | Node, str]] = [(graph, WORKSPACE), (graph, CHILD_WORKDIR)]
    owners += [(node, CHILD_WORKDIR) for node in graph.nodes.values() if node.kind == MANAGER]
    for owner, key in owners:
        written = owner.text(key)
        if written and not PurePath(written).is_absolute():
            yield about(
                owner,
                f"{key} of {owner.subject} is relative to the pipeline's file, which a registered pipeline "
                "does not have",
                key=key,
                fix="write an absolute path"
                + (", or leave it out and name the directory with --workspace" if key == WORKSPACE else ""),
            )


def _stem(file: str) -> str:
    stem = PurePath(file).stem
    return stem if can_be_registered(stem) else "NAME"


REGISTERED = (
    Rule("children_registered", Severity.ERROR, children_registered),
    Rule("places_absolute", Severity.ERROR, places_absolute, per_value=True),
)

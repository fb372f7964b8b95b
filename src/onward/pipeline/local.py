"""What a pipeline names of the machine that executes it: commands, and places in its file system.

Whoever writes a pipeline file on a machine may run commands there anyway. Whoever sends one over the network
may not, unless the operator said so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onward.model.ids import can_be_registered
from onward.pipeline.graph import Graph, Node

COMMANDS = ("tool_command", "tool_hooks.pre", "tool_hooks.post")
PLACES = ("workspace", "stack.child_workdir")
CHILD, PROGRAM, SPELT_OUT = "stack.child_dotfile", "agent_program", "command:"


class Named(NamedTuple):
    """An attribute that names something of the machine; `node` is empty for the graph's own."""

    node: str
    key: str

    def __str__(self) -> str:
        return f"{self.key} of {f'node {self.node!r}' if self.node else 'the graph'}"


def named_here(graph: Graph) -> list[Named]:
    """All that a pipeline names of its machine, the graph's own first. Programs that it names are not
    among it: which command a name means is said in the settings of the machine."""
    owners: list[tuple[str, Graph | Node]] = [("", graph), *graph.nodes.items()]
    return [Named(name, key) for name, owner in owners for key in _keys(owner)]


def _keys(owner: Graph | Node) -> Iterator[str]:
    for key in (*COMMANDS, *PLACES):
        if owner.text(key).strip():
            yield key
    if owner.text(PROGRAM).strip().startswith(SPELT_OUT):
        yield PROGRAM
    if owner.text(CHILD) and not can_be_registered(owner.text(CHILD)):
        yield CHILD

"""A flow as a pipeline: a graph of one node, whose handler calls a Python function.

The text is the same for every version of the function, because the function's code is not part of it: what a
run of a flow may still do is decided by its history.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NODE = "flow"
"""The node of a run that is nothing but a flow."""
RESULT = f"{NODE}.result"
"""Where in its context a run of a flow has what the flow returned."""
FLOW, STEP = "flow:", "step:"
"""How the handlers of flows and steps begin."""
_PATH = re.compile(r"(?s)(.+\.py):([A-Za-z_][A-Za-z0-9_]*)")


class FlowPlace(NamedTuple):
    """Where a flow is: a file of Python, and its name there."""

    file: str
    name: str


def flow_place(path: str | None) -> FlowPlace | None:
    """The place that `site.py:build` names; None if it names none."""
    found = None if path is None else _PATH.fullmatch(path)
    return None if found is None else FlowPlace(found[1], found[2])


def flow_kind(name: str, version: str = "") -> str:
    """The name of a flow's handler."""
    return f"{FLOW}{name}@{version}" if version else f"{FLOW}{name}"


def is_flow_kind(kind: str) -> bool:
    """Whether this is the name of a flow's handler, or of a step's, which is a flow of one step."""
    return kind.startswith((FLOW, STEP))


def flow_source(name: str, version: str = "", *, max_running: int | None = None) -> str:
    """The pipeline of a flow."""
    ceiling = "" if max_running is None else f"  max_running={max_running}\n"
    return (
        f"digraph {name} {{\n{ceiling}"
        "  start [shape=Mdiamond]\n"
        f'  {NODE} [type="{flow_kind(name, version)}", label="{name}"]\n'
        "  exit [shape=Msquare]\n"
        f"  start -> {NODE} -> exit\n}}\n"
    )

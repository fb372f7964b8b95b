"""Context keys that belong to the engine: which they are, what they mean, and who may not set them.

`outcome` and `preferred_label` are the result of the last step and are stored with it. `current_node` and
`internal.retry_count.<node>` follow from the run's state, so they are computed when they are read, and not
stored. `graph.*` are the pipeline's own attributes, mirrored when the run was created.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from onward.errors import InvalidInput
from onward.model.values.value import check_changes

GRAPH, INTERNAL = "graph.", "internal."
OUTCOME, PREFERRED_LABEL, CURRENT_NODE = "outcome", "preferred_label", "current_node"
LAST_RESPONSE = "last_response"
_SAID_BY_RESULT = {OUTCOME: "status", PREFERRED_LABEL: "preferred_label"}


def engine_values(node_id: str, retries: int = 0) -> dict[str, Any]:
    """What the context says about the node at work, and how many retries its step has spent."""
    return {CURRENT_NODE: node_id, f"{INTERNAL}retry_count.{node_id}": retries}


def as_seen(context: Mapping[str, Any], node_id: str, retries: int = 0) -> Mapping[str, Any]:
    """The context as the conditions on a node's edges see it; only to be read."""
    return ChainMap(engine_values(node_id, retries), context)  # type: ignore[arg-type]


def as_told(context: Mapping[str, Any], response: str, node_id: str, retries: int = 0) -> Mapping[str, Any]:
    """The context as texts see it; only to be read.

    The dialect keeps no more than the beginning of the last response, but a prompt means all of it.
    """
    seen = as_seen(context, node_id, retries)
    kept = context.get(LAST_RESPONSE)
    if not isinstance(kept, str) or len(response) <= len(kept) or not response.startswith(kept):
        return seen
    return ChainMap({LAST_RESPONSE: response}, seen)  # type: ignore[arg-type]


def check_given(changes: Mapping[str, Any]) -> None:
    """Refuse what a person may not put into a run's context, at its start or at a fork."""
    check_changes(changes)
    for key in changes:
        if key.startswith(GRAPH):
            name = key.removeprefix(GRAPH)
            raise InvalidInput(f"the context key {key!r} mirrors the pipeline; change {name!r} in its file.")
        if key == CURRENT_NODE or key.startswith(INTERNAL):
            raise InvalidInput(f"the context key {key!r} is reserved for the engine; use another name.")


def check_updates(updates: Mapping[str, Any]) -> None:
    """Refuse what a handler may not put into the context: nothing of it would be true, or stay."""
    check_given(updates)
    for key, field in _SAID_BY_RESULT.items():
        if key in updates:
            raise InvalidInput(
                f"the context key {key!r} is set by the engine; return a Result with {field}=… instead."
            )

"""Find the steps of a run by what a person typed."""

from __future__ import annotations

from onward.errors import StepNotFound
from onward.model.ids import is_in_step, node_of, place_of
from onward.read.log.projection import Projection
from onward.read.log.step import Step


def matching_steps(log: Projection, wanted: str) -> list[Step]:
    """The steps that are meant, in the order in which they started: one by its id, or every visit of a node.

    `test#2` is one step; `test` is every visit of the node, in whatever branch; `fan#1.a/test` every visit in
    that branch.
    """
    return [step for id, step in log.steps.items() if is_meant(id, wanted)]


def is_meant(step: str, wanted: str) -> bool:
    """Whether a person who types `wanted` means this step: by its id, its node, or its place in a branch.

    A question of a step is meant only by its id.
    """
    if is_in_step(step):
        return wanted == step
    at = place_of(step)
    return wanted in (step, at, node_of(at))


def get_steps(log: Projection, wanted: str) -> list[Step]:
    """The same; StepNotFound if there is none."""
    found = matching_steps(log, wanted)
    if not found:
        raise StepNotFound(wanted, list(log.steps))
    return found

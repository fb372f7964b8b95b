"""Find the steps of a run by what a person typed."""

from __future__ import annotations

from onward.errors import StepNotFound
from onward.model.ids import place_of
from onward.read.log.projection import Projection
from onward.read.log.step import Step


def matching_steps(log: Projection, wanted: str) -> list[Step]:
    """The steps that are meant, in the order in which they started: one by its id, or every visit of a node.

    `test#2` is one step; `test` is every visit of the node, in whatever branch; `fan#1.a/test` every visit in
    that branch.
    """
    exact = log.steps.get(wanted)
    if exact is not None:
        return [exact]
    return [step for id, step in log.steps.items() if wanted in (step.node, place_of(id))]


def get_steps(log: Projection, wanted: str) -> list[Step]:
    """The same; StepNotFound if there is none."""
    found = matching_steps(log, wanted)
    if not found:
        raise StepNotFound(wanted, list(log.steps))
    return found

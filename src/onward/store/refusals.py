"""Refusals that every store gives in the same words."""

from __future__ import annotations

from onward.errors import Refused
from onward.store.owner import owner_label


def run_exists(run_id: str) -> Refused:
    """The id of a new run is taken."""
    return Refused("run_exists", f"a run {run_id!r} already exists; choose another --run-id.")


def content_missing(run_id: str) -> Refused:
    """A write relies on content that was stored before, and is not there any more."""
    return Refused(
        "content_missing",
        f"run {run_id} refers to content that is not stored, so nothing was written; try again.",
        details={"run": run_id},
    )


def key_occupied(key: str, run_id: str, owner: str) -> Refused:
    """The exclusive key belongs to another run that is held; names the holder."""
    return Refused(
        "occupied",
        f"{key!r} is in use by run {run_id} ({owner_label(owner)}); wait for it, or pause or cancel it.",
        details={"holder": owner, "run": run_id},
    )
